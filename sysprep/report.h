/*
 * report.h - /run/dsprep/host.json: what the engine may know about this node's rails (design.md 3.6).
 *
 * Written by root as the last step of an apply, read by anybody. Facts that this host does not
 * have, such as the GID of a rail without an RDMA device, are null.
 */
#ifndef PREP_REPORT_H
#define PREP_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "access.h"
#include "conf.h"
#include "plan.h"

#define PREP_REPORT_FILE      "/run/dsprep/host.json"
#define PREP_REPORT_BYTES_MAX (64 * 1024)

/**
 * prep_report_make() - the text of host.json for the rails of @p as they are observed now.
 * @a:          GIDs, NUMA node and kernel release are read through it
 * @generation: of this report, 1 or more
 * @out:        caller's; emptied first; the whole file, ended by a newline
 * Threads: owner only. Return: 0; -1 DS_ERR_NOMEM.
 */
int prep_report_make(struct prep_access *a, const struct prep_conf *c, const struct prep_plan *p,
		     const struct prep_host *h, uint64_t generation, struct ds_buf *out,
		     struct ds_err *err);

/**
 * prep_report_settled() - whether each rail with an RDMA device has its GID by now: the kernel adds
 * it a moment after the address.
 */
bool prep_report_settled(struct prep_access *a, const struct prep_plan *p,
			 const struct prep_host *h);

/**
 * prep_report_current() - whether the existing host.json says just what we would write now.
 * @generation: out, its generation, 0 if there is no readable report; may be NULL
 * An absent, unreadable or different report is not current; none of that is an error.
 */
bool prep_report_current(struct prep_access *a, const struct prep_conf *c,
			 const struct prep_plan *p, const struct prep_host *h,
			 uint64_t *generation);

#endif
