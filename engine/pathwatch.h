/*
 * pathwatch.h - says in the log, on every rank, when a path goes down and when it is back.
 */
#ifndef ENG_PATHWATCH_H
#define ENG_PATHWATCH_H

#include "tp.h"

struct pathwatch;

/**
 * pathwatch_start() - watch @tp until pathwatch_stop(); one thread that looks every 100 ms.
 * @tp: borrowed until pathwatch_stop(). Returns owned; NULL with DS_ERR_HOST or DS_ERR_NOMEM.
 */
struct pathwatch *pathwatch_start(struct tp *tp, struct ds_err *err);
/** pathwatch_stop() - look once more, end the thread, free. NULL is allowed. Call it before tp_close(). */
void pathwatch_stop(struct pathwatch *w);

#endif
