/* SPDX-License-Identifier: GPL-2.0 */
/* What the lab adds to soft-RoCE: a device may move to another network namespace, as devices of real drivers may, and
 * has its netdev's PCI function as parent. edit_tree.py includes this file in rxe_net.c, rxe_qp.c and rxe_verbs.c.
 */
#ifndef RXE_NETNS_H
#define RXE_NETNS_H

/* The netns of a device's netdev: routes and sockets of its QPs belong there. */
struct net *rxe_device_net(struct rxe_dev *rxe);

/* Whether a netdev's notification says that it is about to vanish, and not that it changes its netns. */
static inline bool rxe_netdev_vanishes(struct net_device *ndev)
{
	return ndev->reg_state != NETREG_REGISTERED;
}

/* ib_core makes QP 1 again after a change of netns: its slot has to be free by then. */
static inline void rxe_release_gsi(struct rxe_qp *qp)
{
	if (qp_type(qp) == IB_QPT_GSI)
		to_rdev(qp->ibqp.device)->port.qp_gsi_index = 0;
}

/* Change what the lab's devices do otherwise than soft-RoCE's: their parent, and an operation. */
void rxe_lab_device(struct ib_device *dev, struct net_device *ndev);

#endif
