/*
 * routes.h - the IPv4 routes that go when an address is removed, and how they come back.
 *
 * The kernel drops an interface's routes together with its last address, and those that name the
 * address as their source. What undo restores is the address and these routes (network managers
 * add them apart from the address). Part of the address operations of ops.c, which calls it.
 */
#ifndef PREP_ROUTES_H
#define PREP_ROUTES_H

#include "nl.h"
#include "plan.h"

/**
 * prep_routes_keep() - remember in @op all unicast IPv4 routes through its interface.
 * Return: 0; -1 DS_ERR_HOST if there are more than PREP_OP_ROUTES_MAX, or one that is more than
 * we could restore (several next hops, metrics of its own): nothing was changed yet.
 */
int prep_routes_keep(struct prep_nl *nl, struct prep_op *op, struct ds_err *err);

/** prep_routes_missing() - how many of @op's routes are not there now. Return: count; -1 DS_ERR_HOST. */
int prep_routes_missing(struct prep_nl *nl, const struct prep_op *op, struct ds_err *err);

/**
 * prep_routes_restore() - add those that are missing, directly reachable ones first.
 * @power: a socket opened with CAP_NET_ADMIN raised. Return: 0; -1 with the kernel's words.
 */
int prep_routes_restore(struct prep_nl *nl, struct prep_nl *power, const struct prep_op *op,
			struct ds_err *err);

#endif
