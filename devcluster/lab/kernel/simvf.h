/* SPDX-License-Identifier: GPL-2.0 */
/* The simulated Ethernet NIC: what simvf.c (netdevs, the switch between them, settings of VFs) and simvf_mlx5.c (what
 * mlx5 does otherwise) share, and simvf_ethtool.c (what ethtool sets), and what rxe_netns.c asks about a netdev. An InfiniBand NIC needs none of this: a driver
 * of its own that is linked before simvf.o and claims its PFs in probe(), as here a PF's personality decides which of
 * two drivers takes it.
 */
#ifndef SIMVF_H
#define SIMVF_H

#include <linux/ethtool.h>
#include <linux/hrtimer.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <net/devlink.h>

#define MAXVF 128

struct sv_port;
struct sv_vf {
	u8 mac[ETH_ALEN];
	u16 vlan;
	u8 qos;
	__be16 vproto;
	int min_rate, max_rate, link_state;
	bool spoofchk, trust, rss;
	u64 next_ok, throttled, spoof_drops;
	struct sv_port *port;	/* NULL: no driver is bound */
	/* mlx5: the node GUID that the next driver of the VF reads; whether it has a place in rate scheduling, and its weight */
	u64 node_guid;
	bool enrolled;
	u32 bw_share;
};
struct sv_pf {
	struct pci_dev *pdev;
	struct net_device *dev, *wire;	/* dev is NULL while mlx5 reloads */
	struct sv_vf vf[MAXVF];
	bool mlx5;
	struct devlink *devlink;
	struct dentry *debugfs;
};
/* What ethtool sets on a netdev: it lives as long, and survives a move to another namespace. */
#define SV_QUEUES 4
#define SV_INDIR 16
#define SV_KEY 40
#define SV_RULES 16
#define SV_MAXRING 4096
struct sv_ethtool {
	u32 rx_usecs[SV_QUEUES], tx_usecs[SV_QUEUES], rx_ring, tx_ring;
	bool adaptive[SV_QUEUES];
	u32 all_rx_usecs, all_tx_usecs;
	bool all_adaptive;
	u32 indir[SV_INDIR];
	u8 key[SV_KEY], hfunc;
	struct ethtool_rx_flow_spec rules[SV_RULES];
	DECLARE_BITMAP(used, SV_RULES);
	int tx_stamps, rx_stamps;
	u32 rx_copybreak;
};
struct sv_port {
	struct sv_pf *pf;
	struct net_device *dev;
	int vf;			/* -1 PF, -2 wire */
	struct hrtimer t;
	struct sv_ethtool ethtool;
	/* mlx5: the driver's own objects on the port's RDMA device */
	struct ib_pd *pds[2];
	struct ib_cq *cqs[2];
	struct ib_srq *srqs[2];
};

/* simvf.c */
extern uint sv_speed;
struct net_device *sv_mk(struct sv_pf *pf, struct pci_dev *pdev, int vf, const char *name);
void sv_update_carriers(struct sv_pf *pf);	/* with RTNL held */
bool sv_is_simvf(const struct net_device *dev);
int sv_probe(struct pci_dev *pdev, bool mlx5);
void sv_remove(struct pci_dev *pdev);
int sv_sriov(struct pci_dev *pdev, int n);
extern const struct pci_device_id sv_ids[];

int sv_get_speed(struct net_device *dev, struct ethtool_link_ksettings *k);
static inline struct sv_ethtool *sv_ethtool_of(struct net_device *dev)
{
	return &((struct sv_port *)netdev_priv(dev))->ethtool;
}

/* simvf_ethtool.c */
extern const struct ethtool_ops sv_eops;
void sv_ethtool_init(struct sv_port *p);
void sv_ethtool_open(struct sv_port *p);
int sv_get_stamps(struct net_device *dev, struct kernel_hwtstamp_config *c);
int sv_set_stamps(struct net_device *dev, struct kernel_hwtstamp_config *c, struct netlink_ext_ack *x);

/* simvf_mlx5.c */
/* mlx5e_set_netdev_mtu_boundaries: the port's PMTU.max_mtu, which ConnectX-4 and later have as 10000 (remembered, not
 * read), less the 22 bytes of MLX5E_HW2SW_MTU.
 */
#define SV_MLX5_MAX_MTU 9978
int sv_mlx5_vfs(struct sv_pf *pf);	/* how many VFs take settings */
bool sv_mlx5_is(struct pci_dev *pdev);	/* whether a PF, or a VF's PF, has this personality */
int sv_mlx5_register(struct sv_pf *pf);
void sv_mlx5_unregister(struct sv_pf *pf);
void sv_mlx5_add_rdma(struct net_device *dev);
void sv_mlx5_remove_rdma(struct net_device *dev);
bool sv_mlx5_link(struct sv_pf *pf, const struct sv_vf *vf);
void sv_mlx5_mac(struct sv_vf *vf, const u8 *mac);
void sv_mlx5_rate(struct sv_pf *pf, struct sv_vf *vf, int min, int max);
void sv_mlx5_config(const struct sv_vf *vf, int n, struct ifla_vf_info *info);
int sv_mlx5_parent_id(struct net_device *dev, struct netdev_phys_item_id *id);

/* For soft-RoCE, which makes the RDMA devices. */
int rxe_net_add(const char *ibdev_name, struct net_device *ndev);
bool simvf_guids(struct net_device *dev, __be64 *node_guid, __be64 *system_image_guid);	/* false: has none of its own */
int simvf_query_qp_errno(void);

#endif
