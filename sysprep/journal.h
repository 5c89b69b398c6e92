/*
 * journal.h - what apply did, so that undo can put it back, written before it is done.
 *
 * A journal is a directory /var/lib/dsprep/journal/ID with a file `log`: records of length, CRC and
 * JSON, each on disk before the next action. A file `committed` says how many bytes of the log an
 * apply that ended well had written, so that a log cut short later is told from one that a kill
 * cut short. Layout of a record, little-endian:
 *
 *	u16 length of the JSON text, u16 its complement, u32 CRC-32C of the text, the text
 *
 * The complement makes a damaged length visible: it cannot pass for a record that was cut off.
 * A log holds one or more segments; each begins with a `begin` record (where and when it ran), and
 * an apply that only restores what the newest standing one already holds adds a segment to it.
 *
 * A last record that was cut off (a power cut while it was written) is dropped. All other damage
 * and newer formats are refused by name, before anything is done.
 */
#ifndef PREP_JOURNAL_H
#define PREP_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "ops.h"
#include "plan.h"

#define PREP_JOURNAL_FORMAT	1
#define PREP_JOURNAL_RECORD_MAX 4096		  /* bytes of JSON in one record */
#define PREP_JOURNAL_BYTES_MAX	(4 * 1024 * 1024) /* of one log */
#define PREP_JOURNAL_OPS_MAX	4096		  /* in one journal */
#define PREP_JOURNAL_SEGS_MAX	256
#define PREP_JOURNAL_ID_MAX	999999999 /* of an apply; nine digits */

/* One operation as the log tells it. */
struct prep_jop {
	struct prep_op op;
	unsigned int segment;
	bool done, verified;
	enum prep_undone undone;
};

/* Where and when a segment ran. */
struct prep_jseg {
	char boot_id[40];
	uint64_t netns;
	char management[IFNAMSIZ];
	char config[24]; /* digest of the config file, "crc32c:xxxxxxxx" */
	int64_t time;	 /* seconds since 1970 */
	size_t offset;	 /* of its begin record in the log */
	bool reverted;	 /* all of it was undone because it did not end well */
};

struct prep_journal {
	unsigned int id;
	char path[64];	  /* for messages: /var/lib/dsprep/journal/3/log */
	int dir_fd;	  /* owned; -1 = parsed only */
	int fd;		  /* owned; open for appending; -1 */
	size_t len;	  /* bytes of whole records */
	uint32_t crc;	  /* CRC-32C of those */
	size_t torn;	  /* bytes of a last record that was cut off; dropped at the next append */
	bool closed;	  /* everything in it is undone; history only */
	size_t committed; /* bytes that a good end vouches for; 0 = no apply of it ended well */
	uint32_t committed_crc;
	unsigned int n_op, n_seg;
	struct prep_jop *op;   /* owned */
	struct prep_jseg *seg; /* owned */
};

/**
 * prep_journal_parse() - read a log's bytes into @j; pure, no I/O.
 * @j: zeroed; path set for messages. On success prep_journal_fini() it; on failure it is empty.
 * @committed, @committed_crc: from the `committed` file; 0 if there is none
 * Return: 0; -1 DS_ERR_INPUT naming path, offset and what is wrong, or DS_ERR_NOMEM.
 */
int prep_journal_parse(struct prep_journal *j, const void *data, size_t len, size_t committed,
		       uint32_t committed_crc, struct ds_err *err);
void prep_journal_fini(struct prep_journal *j);

/** prep_journal_unfinished() - the last segment was begun and neither committed nor reverted. */
bool prep_journal_unfinished(const struct prep_journal *j);
/** prep_journal_standing() - an apply in it ended well and is not undone. */
bool prep_journal_standing(const struct prep_journal *j);

struct prep_journals {
	int dir_fd;		 /* owned; -1: no journal directory */
	unsigned int n, last_id; /* last_id counts empty directories too, so ids are never reused */
	struct prep_journal *j;	 /* owned; ascending ids */
};

/**
 * prep_journals_open() - read all journals below the root of @a.
 * @make: create the directory if missing. A directory without a whole begin record is an apply
 * that was killed before it did anything: it is passed over.
 * Return: 0; -1 naming the journal that is damaged, newer, or not ours.
 */
int prep_journals_open(struct prep_access *a, bool make, struct prep_journals *all,
		       struct ds_err *err);
void prep_journals_close(struct prep_journals *all);

/** prep_journal_create() - a new journal behind @all's; the first record is the caller's begin.
 *  @j: out, prep_journal_fini() it. Return: 0; -1. */
int prep_journal_create(struct prep_journals *all, struct prep_journal *j, struct ds_err *err);

/* Each of these appends one record and returns when it is on disk. Return: 0; -1 DS_ERR_HOST. */
int prep_journal_begin(struct prep_journal *j, const struct prep_jseg *seg, struct ds_err *err);
/** prep_journal_intent() - @index: out, the operation's number in this journal. */
int prep_journal_intent(struct prep_journal *j, const struct prep_op *op, unsigned int *index,
			struct ds_err *err);
int prep_journal_done(struct prep_journal *j, unsigned int index, struct ds_err *err);
int prep_journal_verified(struct prep_journal *j, unsigned int index, struct ds_err *err);
int prep_journal_undone(struct prep_journal *j, unsigned int index, enum prep_undone how,
			struct ds_err *err);
/** prep_journal_reverted() - the last segment did not end well and is put back. */
int prep_journal_reverted(struct prep_journal *j, struct ds_err *err);
/** prep_journal_closed() - nothing of this journal is in force any more. */
int prep_journal_closed(struct prep_journal *j, struct ds_err *err);
/** prep_journal_commit() - the apply ended well: vouch for every byte so far. */
int prep_journal_commit(struct prep_journal *j, struct ds_err *err);

/** prep_undone_name() - the word of @how in journals and JSON. */
const char *prep_undone_name(enum prep_undone how);

/**
 * prep_test_point() - a place where a test may end the process: between intent, act and record.
 * The product's own does nothing; a test program defines another of the same name.
 */
void prep_test_point(const char *where);

#endif
