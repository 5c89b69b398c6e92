/*
 * session.h - how the commands that change the host begin: root, the lock, and signals that ask
 * instead of kill.
 */
#ifndef PREP_SESSION_H
#define PREP_SESSION_H

#include "cmd.h"

struct prep_session {
	struct prep_access *access; /* owned */
	int lock_fd;		    /* owned; -1 */
};

/**
 * prep_session_begin() - check for root, open the root directory, take the lock, and from then on
 * let HUP, INT and TERM only set a flag: a change is never cut off halfway by them.
 * @what: the command. Return: 0; else the exit status (64, 75 naming the holder, 77, 1), all said.
 */
int prep_session_begin(struct prep_session *s, const struct prep_opts *o, const char *what);
/** prep_session_end() - safe after a failed begin. */
void prep_session_end(struct prep_session *s);

/** prep_session_signal() - the first of HUP, INT, TERM that came since the begin; 0 = none. */
int prep_session_signal(void);

#endif
