/*
 * caps.c - empties, raises, lowers and drops capabilities of this process through libcap. It owns
 * no policy: which operation needs which capability is written in the table of ops.c.
 */
#include "caps.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static int refuse(struct ds_err *err, const char *what)
{
	return ds_err_set(err, DS_ERR_HOST, errno, "capabilities", "%s", what);
}

/*
 * Sets the effective set to @cap alone, or to nothing. By the system calls, which need no memory:
 * lowering must work always. Return: 0, -1 with errno.
 */
static int set_effective(int cap)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3];
	if (capget(&h, d) != 0)
		return -1;
	for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
		d[i].effective = 0;
	if (cap != PREP_CAP_NONE)
		d[CAP_TO_INDEX(cap)].effective = CAP_TO_MASK(cap);
	return capset(&h, d);
}

/* Return: 1 @cap is permitted; 0 it is not; -1 with errno. */
static int permitted(cap_value_t cap)
{
	cap_t caps = cap_get_proc();
	cap_flag_value_t v = CAP_CLEAR;
	if (caps == NULL)
		return -1;
	int rc = cap_get_flag(caps, cap, CAP_PERMITTED, &v);
	cap_free(caps);
	return rc != 0 ? -1 : v == CAP_SET;
}

int prep_caps_begin(struct ds_err *err)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
		return refuse(err, "forbid new privileges");
	if (set_effective(PREP_CAP_NONE) != 0)
		return refuse(err, "empty the effective set");
	return 0;
}

int prep_caps_need_root(const char *what, struct ds_err *err)
{
	if (geteuid() != 0) {
		ds_err_set(err, DS_ERR_PERM, 0, NULL, "%s", what);
		ds_err_why(err, "it changes the network and needs root");
		return ds_err_fix(err, "sudo dsprep %s", what);
	}
	int have = permitted(CAP_NET_ADMIN);
	if (have < 0)
		return refuse(err, "look at");
	if (have == 0) {
		ds_err_set(err, DS_ERR_PERM, 0, NULL, "%s", what);
		ds_err_why(err, "root lacks CAP_NET_ADMIN here");
		return ds_err_fix(err, "in a container, add the capability: --cap-add NET_ADMIN");
	}
	return 0;
}

int prep_caps_raise(int cap, struct ds_err *err)
{
	if (cap == PREP_CAP_NONE || set_effective(cap) == 0)
		return 0;
	int e = errno;
	char *name = cap_to_name(cap);
	ds_err_set(err, DS_ERR_PERM, e, name, "raise capability");
	cap_free(name);
	return -1;
}

void prep_caps_lower(void)
{
	if (set_effective(PREP_CAP_NONE) != 0)
		abort(); /* lowering needs no privilege; a kernel that refuses it is not to be trusted */
}

/* Without CAP_SETPCAP the bounding set stays; with no_new_privs it cannot give anything back. */
static int drop_bounding(struct ds_err *err)
{
	int have = permitted(CAP_SETPCAP);
	if (have <= 0)
		return have < 0 ? refuse(err, "look at") : 0;
	if (prep_caps_raise(CAP_SETPCAP, err) != 0)
		return -1;
	int rc = 0;
	for (cap_value_t c = 0; rc == 0 && CAP_IS_SUPPORTED(c); c++)
		if (cap_get_bound(c) == 1 && cap_drop_bound(c) != 0)
			rc = refuse(err, "drop from the bounding set");
	prep_caps_lower();
	return rc;
}

int prep_caps_drop(struct ds_err *err)
{
	if (drop_bounding(err) != 0)
		return -1;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
		return refuse(err, "clear the ambient set");
	cap_t none = cap_init(), now = NULL;
	if (none == NULL)
		return ds_err_set(err, DS_ERR_NOMEM, ENOMEM, "capabilities", "drop");
	int rc = 0;
	if (cap_set_proc(none) != 0) {
		rc = refuse(err, "drop");
	} else if ((now = cap_get_proc()) == NULL || cap_compare(now, none) != 0) {
		ds_err_set(err, DS_ERR_HOST, 0, "capabilities", "drop");
		rc = ds_err_why(err, "some are still there afterwards");
	}
	cap_free(now);
	cap_free(none);
	return rc;
}
