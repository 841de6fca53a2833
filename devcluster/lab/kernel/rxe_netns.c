// SPDX-License-Identifier: GPL-2.0
/* Soft-RoCE in every network namespace: sockets, registration and the end of them. edit_tree.py puts it at the end of
 * rxe_net.c, in the place of the functions that serve the first namespace only.
 */

static unsigned int rxe_pernet_id;

static struct rxe_recv_sockets *rxe_ns(struct net *net)
{
	return net_generic(net, rxe_pernet_id);
}

static struct sock *rxe_ns_sk6(struct net *net)
{
	return rxe_ns(net)->sk6->sk;
}

struct net *rxe_device_net(struct rxe_dev *rxe)
{
	struct net_device *ndev = rxe_ib_device_get_netdev(&rxe->ib_dev);
	struct net *net = ndev ? dev_net(ndev) : &init_net;

	dev_put(ndev);
	return net;
}

/* ib_core refuses to move a device whose driver lacks this operation; there is nothing to do. */
static void rxe_disassociate_ucontext(struct ib_ucontext *context)
{
}

void rxe_lab_device(struct ib_device *dev, struct net_device *ndev)
{
	dev->dev.parent = ndev->dev.parent;
	dev->ops.disassociate_ucontext = rxe_disassociate_ucontext;
}

static int __net_init rxe_init_ns(struct net *net)
{
	struct rxe_recv_sockets *sockets = rxe_ns(net);
	struct socket *made = rxe_setup_udp_tunnel(net, htons(ROCE_V2_UDP_DPORT), false);

	if (IS_ERR(made))
		return PTR_ERR(made);
	sockets->sk4 = made;
	made = rxe_setup_udp_tunnel(net, htons(ROCE_V2_UDP_DPORT), true);
	sockets->sk6 = IS_ERR(made) ? NULL : made;
	return 0;
}

static void __net_exit rxe_exit_ns(struct net *net)
{
	rxe_release_udp_tunnel(rxe_ns(net)->sk6);
	rxe_release_udp_tunnel(rxe_ns(net)->sk4);
}

static struct pernet_operations rxe_pernet_ops = {
	.init = rxe_init_ns,
	.exit = rxe_exit_ns,
	.id = &rxe_pernet_id,
	.size = sizeof(struct rxe_recv_sockets),
};

void rxe_net_exit(void)
{
	unregister_netdevice_notifier(&rxe_net_notifier);
	unregister_pernet_subsys(&rxe_pernet_ops);
}

int rxe_net_init(void)
{
	int err = register_pernet_subsys(&rxe_pernet_ops);

	if (err)
		return err;
	err = register_netdevice_notifier(&rxe_net_notifier);
	if (err)
		unregister_pernet_subsys(&rxe_pernet_ops);
	return err;
}
