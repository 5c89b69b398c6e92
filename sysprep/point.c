/*
 * point.c - the product's empty test point, alone in its file so that no call to it is optimised
 * away where a test program puts its own in its place.
 */
#include "journal.h"

__attribute__((weak)) void prep_test_point(const char *where)
{
	(void)where;
}
