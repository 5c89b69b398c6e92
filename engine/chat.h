/*
 * chat.h - a chat/completions body to prompt ids: the encoding of DeepSeek-V4.1, or V4.
 *
 * Roles system, user, assistant, tool, latest_reminder, developer (as system); string or text-part
 * content; thinking and effort; tools, calls and their results; response_format. Images and the
 * functions of older clients are refused by name. The tokenizer decides: one without <System> is V4's.
 */
#ifndef ENG_CHAT_H
#define ENG_CHAT_H

#include <jansson.h>

#include "tokenizer.h"

enum chat_choice {
	CHAT_AUTO,     /* the model decides whether it calls */
	CHAT_NO_CALL,  /* the tools stand in the prompt, but no call may be made */
	CHAT_MUST,     /* at least one call */
	CHAT_MUST_ONE, /* a call of chat_prompt.named */
};

struct chat_prompt {
	struct tok_ids ids; /* owned: chat_prompt_fini() */
	struct ds_buf text; /* the same as text, for people and tests */
	bool open;	    /* the last message goes on: leading line feeds of the answer count */
	bool thinking; /* generation begins in reasoning: behind <think>, or inside when open as well */
	uint32_t effort; /* 1..100 as written in front; 0 in chat mode */

	json_t *tools; /* owned: every tool's function object in the prompt's order; NULL = no tools */
	json_t *format; /* owned: response_format; NULL = text */
	enum chat_choice choice;
	const char *named; /* CHAT_MUST_ONE: the function's name; a view into tools */
	/*
	 * CHAT_MUST and CHAT_MUST_ONE: the opening of the calls that the answer has to begin with. In chat mode
	 * it is the end of ids already (forced_given): show it to the parser first. In thinking mode it has to
	 * be appended when "</think>" was generated.
	 */
	struct tok_ids forced; /* owned */
	bool forced_given;
};

/**
 * chat_encode() - @body is the parsed request (by pyjson_load(), so that long integers survive).
 * Read are messages, tools, tool_choice, response_format, the reasoning knobs, continue_final_message and
 * add_generation_prompt.
 * @thinking_default: without any knob
 * Return: 0; -1 DS_ERR_INPUT: err->obj is the JSON path ("messages[2].content"), why the reason.
 */
int chat_encode(const struct tok *t, const json_t *body, bool thinking_default,
		struct chat_prompt *out, struct ds_err *err);
void chat_prompt_fini(struct chat_prompt *p);
/** chat_is_name() - whether @v can name a tool: a string that can stand between quotes in the markup. */
bool chat_is_name(const json_t *v);

#endif
