/*
 * state.h - the directories of dsprep's own state, opened for writing beneath the root.
 *
 * /run/dsprep (0755) holds the lock and host.json; /var/lib/dsprep/journal (0700) the journals.
 * Each component is opened on its own and never through a symlink, so a hostile tree below --root
 * cannot lead a write elsewhere. Our own directories must belong to us and be closed to others.
 */
#ifndef PREP_STATE_H
#define PREP_STATE_H

#include <stdbool.h>

#include "access.h"
#include "err.h"

#define PREP_JOURNAL_DIR "/var/lib/dsprep/journal"

/**
 * prep_state_run() - /run/dsprep, made if missing.
 * Return: an owned descriptor; -1 (DS_ERR_HOST, DS_ERR_PERM, DS_ERR_INPUT for a foreign thing).
 */
int prep_state_run(struct prep_access *a, struct ds_err *err);

/**
 * prep_state_journal() - /var/lib/dsprep/journal.
 * @make: create what is missing; otherwise its absence is DS_ERR_HOST with sys = ENOENT
 * Return: as prep_state_run().
 */
int prep_state_journal(struct prep_access *a, bool make, struct ds_err *err);

/** prep_state_trust() - refuse @fd (a file or directory, @name) unless it is ours and nobody else
 *  may write to it. Return: 0; -1 DS_ERR_INPUT. */
int prep_state_trust(int fd, const char *name, struct ds_err *err);

#endif
