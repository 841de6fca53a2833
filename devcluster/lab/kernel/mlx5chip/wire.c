// SPDX-License-Identifier: GPL-2.0
/* wireN: a plain netdev at the other end of the cable of port N. */
#include <linux/etherdevice.h>
#include <linux/netdevice.h>
#include "chip.h"

#define LARGEST_MTU	9978

static struct chip_pf *pf_of(struct net_device *dev)
{
	return *(struct chip_pf **)netdev_priv(dev);
}

static netdev_tx_t wire_send(struct sk_buff *skb, struct net_device *dev)
{
	dev->stats.tx_packets++;
	dev->stats.tx_bytes += skb->len;
	if (!skb_linearize(skb) && (skb->ip_summed != CHECKSUM_PARTIAL || !skb_checksum_help(skb)))
		chip_from_wire(pf_of(dev), skb->data, skb->len);
	dev_consume_skb_any(skb);
	return NETDEV_TX_OK;
}

static const struct net_device_ops wire_ops = {
	.ndo_start_xmit = wire_send,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
};

static void wire_setup(struct net_device *dev)
{
	ether_setup(dev);
	dev->netdev_ops = &wire_ops;
	dev->needs_free_netdev = true;
	dev->max_mtu = LARGEST_MTU;
	eth_hw_addr_random(dev);
}

void chip_to_wire(struct chip_pf *pf, const u8 *frame, u32 len)
{
	struct net_device *dev = pf->wire;
	struct sk_buff *skb;

	if (!netif_running(dev))
		return;
	skb = netdev_alloc_skb_ip_align(dev, len);
	if (!skb)
		return;
	skb_put_data(skb, frame, len);
	skb->protocol = eth_type_trans(skb, dev);
	dev->stats.rx_packets++;
	dev->stats.rx_bytes += len;
	netif_rx(skb);
}

void chip_wire_carrier(struct chip_pf *pf)
{
	if (pf->port_up)
		netif_carrier_on(pf->wire);
	else
		netif_carrier_off(pf->wire);
}

int chip_wire_init(struct chip_pf *pf)
{
	struct net_device *dev = alloc_netdev(sizeof(pf), "wire%d", NET_NAME_ENUM, wire_setup);
	int err;

	if (!dev)
		return -ENOMEM;
	*(struct chip_pf **)netdev_priv(dev) = pf;
	err = register_netdev(dev);
	if (err) {
		free_netdev(dev);
		return err;
	}
	netif_carrier_off(dev);
	pf->wire = dev;
	return 0;
}
