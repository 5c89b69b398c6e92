/*
 * lock.h - one dsprep at a time: a record lock on /run/dsprep/lock.
 *
 * The file is never written, so its times never change; the holder's pid comes from the kernel.
 * The lock goes with the process, however it ends. It is 0600: whoever may open it may block us.
 */
#ifndef PREP_LOCK_H
#define PREP_LOCK_H

#include <sys/types.h>

#include "err.h"

/**
 * prep_lock_take() - lock, without waiting.
 * @run_fd: the run directory, borrowed for the call; @fd: out, owned: close() unlocks, and so does
 *          closing any other descriptor of that file in this process, which nobody else opens
 * @holder: out, pid of the holder when it is taken; 0 if it is outside our pid namespace
 * Return: 0; 1 somebody else holds it; -1 DS_ERR_HOST or DS_ERR_INPUT.
 */
int prep_lock_take(int run_fd, int *fd, pid_t *holder, struct ds_err *err);

#endif
