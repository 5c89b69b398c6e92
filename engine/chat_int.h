/*
 * chat_int.h - private to chat*.c: a conversation as turns, between its JSON and its layout.
 */
#ifndef ENG_CHAT_INT_H
#define ENG_CHAT_INT_H

#include "chat.h"

enum chat_role {
	CHAT_SYSTEM,
	CHAT_USER,
	CHAT_ASSISTANT,
	CHAT_REMINDER
};

/* A piece of a turn: what one message says, or one result of a call. */
struct chat_part {
	const json_t *content; /* checked: a string, a list of text parts, or NULL */
	bool result;
	uint32_t rank; /* of a result: place of its call in the assistant's message */
	size_t at;     /* among the conversation's parts: keeps the sort stable */
};

/* One turn: a message, or adjacent messages of users and tools as one. Views into the body. */
struct chat_turn {
	enum chat_role role;
	struct chat_part *part; /* [n_part], in the order in which they are written */
	size_t n_part;
	const json_t *reasoning; /* of an assistant: a string, or NULL */
	const json_t *calls;	 /* of an assistant: its "tool_calls", checked; NULL = none */
	json_t *args;		 /* owned: [calls] their arguments, each an object */
	const json_t *tools;	 /* of a system message: its own "tools", checked; NULL = none */
};

struct chat_turns {
	struct chat_turn *turn;
	struct chat_part *part; /* all turns' */
	size_t n, n_part;
	bool open;     /* the last turn is an assistant's and is to be continued */
	bool closed;   /* no header behind the last turn */
	bool tools;    /* a message has tools of its own */
	bool keep_all; /* no reasoning is dropped */
};

/** chat_read_turns() - "messages" and what continues them. Return: 0; -1; chat_turns_fini() in both cases. */
int chat_read_turns(struct chat_turns *l, const json_t *body, struct ds_err *err);
void chat_turns_fini(struct chat_turns *l);

/** chat_read_tools() - "tools", "tool_choice" and "response_format" into @out. */
int chat_read_tools(const json_t *body, struct chat_prompt *out, struct ds_err *err);
/** chat_check_tools() - a list of {"type": "function", "function": {"name": ...}}. @path: of the list. */
int chat_check_tools(const json_t *tools, const char *path, struct ds_err *err);

/** chat_read_knobs() - thinking and effort. */
int chat_read_knobs(const json_t *body, bool thinking_default, struct chat_prompt *out,
		    struct ds_err *err);

/** chat_refuse() - DS_ERR_INPUT at the JSON path @path. Return: -1. */
int chat_refuse(struct ds_err *err, const char *path, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int chat_no_memory(struct ds_err *err);
bool chat_absent(const json_t *v); /* not there, or null */
/** chat_is() - whether @v is the string @want; compared by length, since it may hold NUL. */
bool chat_is(const json_t *v, const char *want);

#endif
