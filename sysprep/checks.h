/*
 * checks.h - the check functions behind the table in checks.c; nobody else calls them.
 */
#ifndef PREP_CHECKS_H
#define PREP_CHECKS_H

#include "doctor.h"

/* check_memory.c */
void prep_check_kho(struct prep_doctor *d, const struct prep_check *check);
void prep_check_memlock(struct prep_doctor *d, const struct prep_check *check);
/* check_net.c */
void prep_check_carrier(struct prep_doctor *d, const struct prep_check *check);
void prep_check_unaddressed(struct prep_doctor *d, const struct prep_check *check);
void prep_check_one_subnet(struct prep_doctor *d, const struct prep_check *check);
void prep_check_link_local(struct prep_doctor *d, const struct prep_check *check);
void prep_check_duplicate(struct prep_doctor *d, const struct prep_check *check);
void prep_check_mtu(struct prep_doctor *d, const struct prep_check *check);

#endif
