/*
 * host_text.h - an observed host as a few lines of text, for golden plans and doctor tests.
 */
#ifndef TST_HOST_TEXT_H
#define TST_HOST_TEXT_H

#include "host.h"

/**
 * tst_host_text() - fill @h from lines of these forms, "#" starts a comment:
 *   initial                     the host's first network namespace
 *   functions N                 fabric functions on the PCI bus
 *   link NAME [up] [carrier] [loopback] [mtu=N] [max=N] [pci=BDF] [port=pN] [master=NAME]
 *             [lower=NAME] [ipv6-off] [tuned]
 *                               ifindex is the line's place; without "up" carrier cannot be read;
 *                               "tuned" has the sysctls that we set
 *   addr NAME A/LEN [secondary] [dynamic] [kernel]
 *   route A/LEN|default NAME [metric=N]
 * Identification is prep_host_identify()'s. Return: 0; the number of the first wrong line.
 */
int tst_host_text(const char *text, struct prep_host *h);

#endif
