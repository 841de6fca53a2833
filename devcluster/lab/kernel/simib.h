/* SPDX-License-Identifier: GPL-2.0 */
/* What the two halves of the InfiniBand HCA share: its verbs device, and the operations on queues. */
#include <linux/pci.h>
#include <rdma/ib_verbs.h>

struct sib_pf;
struct sib_dev {
	struct ib_device ib;
	struct sib_pf *pf;
	struct pci_dev *pdev;
	int vf;			/* -1: the PF */
	u64 port_guid;		/* read at probe, as ib.node_guid is */
	enum ib_port_state state;
	struct delayed_work activate;
	atomic_t next_qpn;
};
#define DEV(d) container_of(d, struct sib_dev, ib)
extern const struct ib_device_ops sib_queue_ops;
extern uint sib_query_qp_errno;	/* a parameter of simib */
