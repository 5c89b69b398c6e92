/*
 * checks.c - the closed table of checks: what each means, what it reads, and what helps.
 *
 * The order is the order of causes: memory and kernel, then link, then addresses. The ids are
 * stable words, also listed in dsprep.8.
 */
#include "checks.h"

/* clang-format off */
static const struct prep_check checks[] = {
	{ "kho-scratch", PREP_SEV_CRITICAL, true,
	  "Kexec HandOver keeps gigabytes of CMA pages outside the CMA accounting; long-term pins "
	  "cannot move off them once memory is full, and ibv_reg_mr fails with \"Cannot allocate memory\".",
	  "Boot with kho=off, or a kernel without default KHO, and check again; cma= does not help.",
	  "MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#259; NVIDIA developer forum 383254, 383926",
	  { "proc/meminfo", "proc/cmdline", "proc/sys/kernel/osrelease", "boot/config-*",
	    "sys/kernel/debug/kho/out" },
	  prep_check_kho },
	{ "memlock-low", PREP_SEV_CRITICAL, false,
	  "Registering memory for RDMA counts against the locked-memory limit of the process; with "
	  "8 MiB or less the first registration fails.",
	  "Set LimitMEMLOCK=infinity in the engine's unit, or --ulimit memlock=-1:-1 for a container.",
	  "systemd.exec(5), getrlimit(2); jschmied/dgx-spark-setup-guide; graham33/nixos-dgx-spark",
	  { "proc/*/comm", "proc/*/limits", "sys/class/infiniband",
	    "etc/systemd/system/dsengine.service", "usr/lib/systemd/system/dsengine.service" },
	  prep_check_memlock },
	{ "no-carrier", PREP_SEV_ERROR, true,
	  "A rail that is used has no link: the cable is out, half seated or broken, or the interface "
	  "is administratively down.",
	  "Push the plug until the latch clicks, then try the other cage and another cable.",
	  "rtnetlink(7), IFLA_CARRIER; NVIDIA developer forum, reports of half seated plugs",
	  { "rtnetlink link", "rtnetlink address" },
	  prep_check_carrier },
	{ "twin-unaddressed", PREP_SEV_ERROR, true,
	  "Each cage has two functions that share its cable; one without exactly one IPv4 address "
	  "carries nothing, and half of the bandwidth is gone.",
	  "Run: sudo dsprep apply.",
	  "NVIDIA/dgx-spark-playbooks: nvidia/connect-two-sparks; thatcooperguy/NVCheckup",
	  { "rtnetlink link", "rtnetlink address" },
	  prep_check_unaddressed },
	{ "twins-one-subnet", PREP_SEV_ERROR, true,
	  "Two fabric interfaces with overlapping networks: the kernel sends both rails' traffic out "
	  "of one of them, and the peer learns the wrong MAC address.",
	  "Give each rail its own subnet; dsprep apply does.",
	  "NVIDIA/dgx-spark-playbooks: nvidia/multi-sparks-through-switch; graham33/nixos-dgx-spark",
	  { "rtnetlink link", "rtnetlink address" },
	  prep_check_one_subnet },
	{ "link-local-only", PREP_SEV_WARNING, true,
	  "A fabric address in 169.254.0.0/16 changes at every boot, and two such rails route to one "
	  "interface.",
	  "Use static addresses; dsprep apply does.",
	  "RFC 3927; NVIDIA/dgx-spark-playbooks: nvidia/connect-two-sparks/assets/cx7-netplan.yaml",
	  { "rtnetlink link", "rtnetlink address" },
	  prep_check_link_local },
	{ "address-duplicate", PREP_SEV_CRITICAL, true,
	  "A fabric network overlaps another network of this host, or one address stands on two "
	  "interfaces: connections land on the wrong one. Other nodes are not asked.",
	  "Choose other subnets in dsprep.conf, the same on every node.",
	  "RFC 5227; NVIDIA developer forum, reports of one netplan file copied to two nodes",
	  { "rtnetlink link", "rtnetlink address" },
	  prep_check_duplicate },
	{ "mtu-mismatch", PREP_SEV_ERROR, true,
	  "Rails with different MTUs pass small messages and lose large ones. This end only: the far "
	  "end's MTU is not asked.",
	  "Set one value on every rail of every node; behind a switch its own MTU must be at least 9216.",
	  "eugr/spark-vllm-docker: docs/NETWORKING.md",
	  { "rtnetlink link" },
	  prep_check_mtu },
};
/* clang-format on */

const struct prep_check *prep_checks(size_t *n)
{
	*n = sizeof(checks) / sizeof(checks[0]);
	return checks;
}
