/*
 * watch.c - compares the management interface with what it had before. It only looks.
 */
#include "watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int64_t prep_now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* An IPv6 privacy address comes and goes by itself; its end says nothing about the link. */
static bool watched_addr(const struct prep_watch *w, const struct prep_addr *a)
{
	return a->ifindex == w->link.ifindex &&
	       !(a->family == AF_INET6 && (a->flags & IFA_F_TEMPORARY));
}

static bool watched_route(const struct prep_watch *w, const struct prep_route *r)
{
	return r->oif == w->link.ifindex && r->table == RT_TABLE_MAIN;
}

static bool same_addr(const struct prep_addr *a, const struct prep_addr *b)
{
	return a->ifindex == b->ifindex && a->family == b->family && a->prefix == b->prefix &&
	       memcmp(&a->local, &b->local, a->family == AF_INET ? 4 : 16) == 0;
}

static bool same_route(const struct prep_route *a, const struct prep_route *b)
{
	return a->oif == b->oif && a->family == b->family && a->table == b->table &&
	       a->dst_len == b->dst_len && a->dst.s_addr == b->dst.s_addr &&
	       a->gateway.s_addr == b->gateway.s_addr && a->metric == b->metric;
}

int prep_watch_begin(struct prep_watch *w, struct prep_access *a, const struct prep_host *h,
		     const char *ifname, struct ds_err *err)
{
	const struct prep_link *l = prep_host_link(h, ifname);
	*w = (struct prep_watch){ .access = a };
	if (l == NULL)
		return ds_err_set(err, DS_ERR_HOST, ENODEV, ifname,
				  "watch the management interface");
	w->link = *l;
	w->addr = calloc(h->n_addr + 1, sizeof(*w->addr));
	w->route = calloc(h->n_route + 1, sizeof(*w->route));
	if (w->addr == NULL || w->route == NULL) {
		prep_watch_end(w);
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, ifname,
				  "watch the management interface");
	}
	for (uint32_t i = 0; i < h->n_addr; i++)
		if (watched_addr(w, &h->addr[i]))
			w->addr[w->n_addr++] = h->addr[i];
	for (uint32_t i = 0; i < h->n_route; i++)
		if (watched_route(w, &h->route[i]))
			w->route[w->n_route++] = h->route[i];
	return 0;
}

void prep_watch_end(struct prep_watch *w)
{
	free(w->addr);
	free(w->route);
	w->addr = NULL;
	w->route = NULL;
	w->n_addr = w->n_route = 0;
}

static bool addr_gone(struct prep_watch *w, const struct prep_host *h)
{
	for (uint32_t i = 0; i < w->n_addr; i++) {
		bool found = false;
		for (uint32_t k = 0; !found && k < h->n_addr; k++)
			found = same_addr(&w->addr[i], &h->addr[k]);
		if (found)
			continue;
		char text[INET6_ADDRSTRLEN];
		inet_ntop(w->addr[i].family, &w->addr[i].local, text, sizeof(text));
		snprintf(w->gone, sizeof(w->gone), "address %s", text);
		return true;
	}
	return false;
}

static bool route_gone(struct prep_watch *w, const struct prep_host *h)
{
	for (uint32_t i = 0; i < w->n_route; i++) {
		bool found = false;
		for (uint32_t k = 0; !found && k < h->n_route; k++)
			found = same_route(&w->route[i], &h->route[k]);
		if (found)
			continue;
		char text[INET_ADDRSTRLEN] = "::";
		if (w->route[i].family == AF_INET)
			inet_ntop(AF_INET, &w->route[i].dst, text, sizeof(text));
		snprintf(w->gone, sizeof(w->gone), "route %s/%u", text, w->route[i].dst_len);
		return true;
	}
	return false;
}

static bool is_gone(struct prep_watch *w, const struct prep_host *h)
{
	const struct prep_link *l = prep_host_ifindex(h, w->link.ifindex);
	if (l == NULL) {
		snprintf(w->gone, sizeof(w->gone), "the interface itself");
		return true;
	}
	if (w->link.carrier == 1 && l->carrier != 1) {
		snprintf(w->gone, sizeof(w->gone), "carrier");
		return true;
	}
	return addr_gone(w, h) || route_gone(w, h);
}

bool prep_watch_look(struct prep_watch *w)
{
	struct prep_host h;
	struct ds_err err = { 0 };
	bool gone = true;
	/* One look that failed must not make all later ones fail. */
	prep_access_forget(w->access);
	if (prep_host_read(w->access, &h, &err) == 0) {
		gone = is_gone(w, &h);
		prep_host_fini(&h);
	} else {
		snprintf(w->gone, sizeof(w->gone), "all sight of it (%.40s: %.80s)", err.what,
			 err.why);
	}
	int64_t now = prep_now_ms();
	if (!gone)
		w->gone_since_ms = 0;
	else if (w->gone_since_ms == 0)
		w->gone_since_ms = now;
	return gone && now - w->gone_since_ms > PREP_WATCH_LOST_MS;
}
