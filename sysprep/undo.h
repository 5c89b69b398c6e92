/*
 * undo.h - putting back what a journal records: shared by undo, by a failing apply, and by an
 * apply that finds one that was killed.
 */
#ifndef PREP_UNDO_H
#define PREP_UNDO_H

#include "access.h"
#include "buf.h"
#include "host.h"
#include "journal.h"

/* What became of the steps; adds up over several journals. */
struct prep_back {
	unsigned int n_step, n_restored, n_left, n_failed;
	struct ds_buf text; /* one line a step for people */
	struct ds_buf json; /* the same as objects, separated by commas */
};

/** prep_back_fini() - safe on a zeroed object. */
void prep_back_fini(struct prep_back *b);

/** prep_back_refuse() - whether @j holds steps of another network namespace of this boot, which
 *  cannot be undone from here. Return: 0; -1 naming journal and namespaces. */
int prep_back_refuse(const struct prep_journal *j, const struct prep_host *h, struct ds_err *err);

/**
 * prep_back_journal() - undo the steps of @j from segment @from on, newest first, verifying each.
 * @h: boot and namespace of now; what another boot did to the network is void.
 * A step that somebody else changed since is left and named; one that fails is named; the rest
 * goes on. Each is recorded. A journal that cannot be written does not stop the undoing either.
 * Return: 0 every step is dealt with (look at @b); -1 steps failed or could not be recorded: @err
 * is the first such failure, and @j stays as it is for another try.
 */
int prep_back_journal(struct prep_access *a, const struct prep_host *h, struct prep_journal *j,
		      unsigned int from, struct prep_back *b, struct ds_err *err);

/**
 * prep_back_unfinished() - put back the last segment of @j, an apply that did not end well, and
 * record that. Return: as prep_back_journal().
 */
int prep_back_unfinished(struct prep_access *a, const struct prep_host *h, struct prep_journal *j,
			 struct prep_back *b, struct ds_err *err);

#endif
