// SPDX-License-Identifier: GPL-2.0
/* The personality "mlx5 Ethernet" of the simulated NIC, in legacy mode. Functions named in comments are those of Linux
 * 6.12 in drivers/net/ethernet/mellanox/mlx5/core, unless another place is named. simvf.c has what does not differ.
 */
#include <linux/debugfs.h>
#include <linux/etherdevice.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>
#include <linux/seq_file.h>
#include <rdma/ib_verbs.h>

#include "simvf.h"

/* The parameters of both files are those of one driver. */
#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "simvf."

/* Which PFs have the personality (bit 0: function 0), and the name of their driver, by which programs know it. */
static uint mlx5;
static char *mlx5_driver = "mlx5_core";
module_param(mlx5, uint, 0444);
module_param(mlx5_driver, charp, 0444);
/* The largest weight that the firmware takes (its capability max_tsar_bw_share). */
static uint max_bw_share = 100;
module_param(max_bw_share, uint, 0644);
/* Not 0: the errno of every query of a queue pair. mlx5_ib_query_qp answers ENOSYS for RSS QPs, others on a sick VF. */
static uint query_qp_errno;
module_param(query_qp_errno, uint, 0644);

static struct dentry *debugfs;

/* The NIC's GUIDs come from its firmware; all functions have one system image GUID, each PF a node GUID. */
#define SYSTEM_IMAGE_GUID 0x0c42a103005d3b00ULL

bool sv_mlx5_is(struct pci_dev *pdev)
{
	return mlx5 & BIT(PCI_FUNC(pci_physfn(pdev)->devfn));
}

/* GUIDs and the RDMA device */

/* node_guid_gen_from_mac: no bit is flipped, so a MAC of zeros makes 0000:00ff:fe00:0000. */
static u64 guid_of(const u8 *mac)
{
	return (u64)mac[0] << 56 | (u64)mac[1] << 48 | (u64)mac[2] << 40 | 0xfffeULL << 24 |
	       (u64)mac[3] << 16 | (u64)mac[4] << 8 | mac[5];
}

/* mlx5_esw_set_vport_mac_locked: any address but a multicast one, at any time; it makes the node GUID too. Neither
 * reaches a bound VF: its driver reads both when it is probed (mlx5e_set_netdev_dev_addr; mlx5_query_node_guid of
 * drivers/infiniband/hw/mlx5/main.c). A VF that never had an admin MAC has GUID 0 (mlx5_eswitch_clear_vf_vports_info).
 */
void sv_mlx5_mac(struct sv_vf *vf, const u8 *mac)
{
	ether_addr_copy(vf->mac, mac);
	vf->node_guid = guid_of(mac);
}

bool simvf_guids(struct net_device *dev, __be64 *node_guid, __be64 *system_image_guid)
{
	struct sv_port *port = netdev_priv(dev);

	if (!sv_is_simvf(dev) || !port->pf->mlx5)
		return false;
	if (port->vf >= 0)
		*node_guid = cpu_to_be64(port->pf->vf[port->vf].node_guid);
	else
		*node_guid = cpu_to_be64(SYSTEM_IMAGE_GUID + PCI_FUNC(port->pf->pdev->devfn));
	*system_image_guid = cpu_to_be64(SYSTEM_IMAGE_GUID);
	return true;
}

int simvf_query_qp_errno(void)
{
	return -(int)query_qp_errno;
}

/* The objects that the driver itself owns on each device of drivers/infiniband/hw/mlx5: a protection domain, a completion
 * queue and two shared receive queues (mlx5_ib_dev_res_cq_init and mlx5_ib_dev_res_srq_init of main.c), and those of its
 * memory registration (mlx5r_umr_resource_init of umr.c; the queue pair comes later). `rdma resource show` lists them.
 */
static int add_own_objects(struct sv_port *port, struct ib_device *ib)
{
	struct ib_srq_init_attr attr = { .attr = { .max_wr = 1, .max_sge = 1 } };
	int n;

	for (n = 0; n < 2; n++) {
		port->pds[n] = __ib_alloc_pd(ib, 0, "mlx5_ib");
		if (IS_ERR(port->pds[n]))
			return PTR_ERR(port->pds[n]);
		port->cqs[n] = __ib_alloc_cq(ib, NULL, n ? 128 : 1, 0, IB_POLL_SOFTIRQ, "mlx5_ib");
		if (IS_ERR(port->cqs[n]))
			return PTR_ERR(port->cqs[n]);
	}
	for (n = 0; n < 2; n++) {
		port->srqs[n] = ib_create_srq(port->pds[0], &attr);
		if (IS_ERR(port->srqs[n]))
			return PTR_ERR(port->srqs[n]);
	}
	return 0;
}

static void remove_own_objects(struct sv_port *port)
{
	int n;

	for (n = 0; n < 2; n++)
		if (!IS_ERR_OR_NULL(port->srqs[n]))
			ib_destroy_srq(port->srqs[n]);
	for (n = 0; n < 2; n++) {
		if (!IS_ERR_OR_NULL(port->cqs[n]))
			ib_free_cq(port->cqs[n]);
		if (!IS_ERR_OR_NULL(port->pds[n]))
			ib_dealloc_pd(port->pds[n]);
	}
	memset(port->srqs, 0, sizeof(port->srqs));
	memset(port->cqs, 0, sizeof(port->cqs));
	memset(port->pds, 0, sizeof(port->pds));
}

/* mlx5_rescan_drivers_locked: after the netdev, the auxiliary device of mlx5_ib; both vanish in the other order. Only the
 * driver removes it: mlx5_ib does not set IBK_ALLOW_USER_UNREG.
 */
void sv_mlx5_add_rdma(struct net_device *dev)
{
	int err = rxe_net_add("mlx5_%d", dev);
	struct ib_device *ib = err ? NULL : ib_device_get_by_netdev(dev, RDMA_DRIVER_RXE);

	if (ib) {
		ib->attrs.kernel_cap_flags &= ~IBK_ALLOW_USER_UNREG;
		err = add_own_objects(netdev_priv(dev), ib);
		ib_device_put(ib);
	}
	if (err)
		netdev_err(dev, "no RDMA device, or without its driver's objects: %d\n", err);
}

void sv_mlx5_remove_rdma(struct net_device *dev)
{
	struct ib_device *ib = ib_device_get_by_netdev(dev, RDMA_DRIVER_RXE);

	if (ib) {
		remove_own_objects(netdev_priv(dev));
		ib_unregister_device_and_put(ib);
	}
}

/* Links */

/* mlx5e_close, mlx5e_modify_admin_state: a closed PF takes down its port and, with the capability uplink_follow, the
 * uplink vport; a VF's vport whose state is AUTO follows that one.
 */
bool sv_mlx5_link(struct sv_pf *pf, const struct sv_vf *vf)
{
	if (vf->link_state == IFLA_VF_LINK_STATE_AUTO)
		return pf->dev && netif_running(pf->dev);
	return vf->link_state == IFLA_VF_LINK_STATE_ENABLE;
}

/* mlx5e_devlink_port_register: a PF that manages the e-switch has its switch's id in legacy mode too. The driver gives it
 * by a devlink port of the auxiliary device, which this NIC does without.
 */
int sv_mlx5_parent_id(struct net_device *dev, struct netdev_phys_item_id *id)
{
	struct sv_port *port = netdev_priv(dev);
	__be64 guid = cpu_to_be64(SYSTEM_IMAGE_GUID);

	if (!port->pf->mlx5)
		return -EOPNOTSUPP;
	id->id_len = sizeof(guid);
	memcpy(id->id, &guid, sizeof(guid));
	return 0;
}

/* Rates */

/* esw_qos_calculate_min_rate_divider, esw_qos_calc_bw_share, esw_qos_normalize_vports_min_rate: the largest min rate sets
 * the divider; an enrolled VF weighs its min rate over it, at least 1 and at most what the firmware takes; where no
 * VF has a min rate, all weigh 0. VFs outside are none of this, nor are VFs that do not exist (not vport->enabled).
 */
static void normalize(struct sv_pf *pf)
{
	u32 largest = 0, divider;
	int n, vfs = pci_num_vf(pf->pdev);

	for (n = 0; n < vfs; n++)
		if (pf->vf[n].enrolled)
			largest = max_t(u32, largest, pf->vf[n].min_rate);
	divider = largest ? max_t(u32, largest / max_bw_share, 1) : 0;
	for (n = 0; n < vfs; n++) {
		struct sv_vf *vf = &pf->vf[n];

		vf->bw_share = 0;
		if (vf->enrolled && divider)
			vf->bw_share = clamp_t(u32, DIV_ROUND_UP(vf->min_rate, divider), 1, max_bw_share);
	}
}

/* mlx5_esw_qos_set_vport_rate: any rate, 0/0 too, gives the VF a place in rate scheduling, until it is disabled. Its weight
 * is 0 at first (esw_qos_vport_enable), and all weights are calculated only if a min rate changes:
 * esw_qos_set_vport_min_rate returns early otherwise. The driver compares with no line rate.
 */
void sv_mlx5_rate(struct sv_pf *pf, struct sv_vf *vf, int min, int max)
{
	bool changed = min != vf->min_rate;

	vf->enrolled = true;
	vf->min_rate = min;
	vf->max_rate = max;
	vf->next_ok = 0;
	if (changed)
		normalize(pf);
}

/* mlx5_eswitch_get_vport finds every vport that the device can have: VFs that do not exist take settings, which they have
 * when they are made.
 */
int sv_mlx5_vfs(struct sv_pf *pf)
{
	return pci_sriov_get_totalvfs(pf->pdev);
}

/* mlx5_eswitch_get_vport_config: everything it does not name is zero, the VLAN protocol too. */
void sv_mlx5_config(const struct sv_vf *vf, int n, struct ifla_vf_info *info)
{
	memset(info, 0, sizeof(*info));
	info->vf = n;
	ether_addr_copy(info->mac, vf->mac);
	info->linkstate = vf->link_state;
	info->vlan = vf->vlan;
	info->qos = vf->qos;
	info->spoofchk = vf->spoofchk;
	info->trusted = vf->trust;
	info->min_tx_rate = vf->min_rate;
	info->max_tx_rate = vf->max_rate;
}

/* The driver shows its weights by trace events only (mlx5_esw_vport_qos_config); here /sys/kernel/debug/simvf/PF/bw_share
 * has a line for each VF: its number and its weight, or "outside".
 */
static int bw_share_show(struct seq_file *file, void *unused)
{
	struct sv_pf *pf = file->private;
	int n;

	rtnl_lock();
	for (n = 0; n < pci_num_vf(pf->pdev); n++)
		if (pf->vf[n].enrolled)
			seq_printf(file, "%d %u\n", n, pf->vf[n].bw_share);
		else
			seq_printf(file, "%d outside\n", n);
	rtnl_unlock();
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(bw_share);

/* devlink */

static struct sv_pf *pf_of(struct devlink *devlink)
{
	return *(struct sv_pf **)devlink_priv(devlink);
}

static int eswitch_mode_get(struct devlink *devlink, u16 *mode)
{
	*mode = DEVLINK_ESWITCH_MODE_LEGACY;
	return 0;
}

/* mlx5_unload_one_devl_locked: the netdev and the RDMA device go; mlx5_sriov_detach: the VFs stay, with what
 * esw_vport_setup restores of them (MAC, GUID, VLAN, trust, spoof check). Rates and places in rate scheduling are lost
 * (esw_vport_cleanup, mlx5_esw_qos_vport_disable), and esw_legacy_enable sets the link state to AUTO.
 */
static int reload_down(struct devlink *devlink, bool netns_change, enum devlink_reload_action action,
		       enum devlink_reload_limit limit, struct netlink_ext_ack *extack)
{
	struct sv_pf *pf = pf_of(devlink);
	struct net_device *dev = pf->dev;
	int n;

	sv_mlx5_remove_rdma(dev);
	rtnl_lock();
	for (n = 0; n < MAXVF; n++) {
		struct sv_vf *vf = &pf->vf[n];

		vf->enrolled = false;
		vf->min_rate = vf->max_rate = vf->bw_share = 0;
		vf->link_state = IFLA_VF_LINK_STATE_AUTO;
	}
	WRITE_ONCE(pf->dev, NULL);
	sv_update_carriers(pf);
	unregister_netdevice(dev);
	rtnl_unlock();
	free_netdev(dev);
	return 0;
}

static int reload_up(struct devlink *devlink, enum devlink_reload_action action, enum devlink_reload_limit limit,
		     u32 *actions_performed, struct netlink_ext_ack *extack)
{
	struct sv_pf *pf = pf_of(devlink);
	struct net_device *dev = sv_mk(pf, pf->pdev, -1, "eth%d");

	if (!dev)
		return -ENOMEM;
	WRITE_ONCE(pf->dev, dev);
	sv_mlx5_add_rdma(dev);
	*actions_performed = BIT(DEVLINK_RELOAD_ACTION_DRIVER_REINIT);
	return 0;
}

static const struct devlink_ops devlink_operations = {
	.reload_actions = BIT(DEVLINK_RELOAD_ACTION_DRIVER_REINIT),
	.reload_down = reload_down,
	.reload_up = reload_up,
	.eswitch_mode_get = eswitch_mode_get,
};

int sv_mlx5_register(struct sv_pf *pf)
{
	pf->devlink = devlink_alloc(&devlink_operations, sizeof(pf), &pf->pdev->dev);
	if (!pf->devlink)
		return -ENOMEM;
	*(struct sv_pf **)devlink_priv(pf->devlink) = pf;
	pf->debugfs = debugfs_create_dir(pci_name(pf->pdev), debugfs);
	debugfs_create_file("bw_share", 0400, pf->debugfs, pf, &bw_share_fops);
	sv_mlx5_add_rdma(pf->dev);
	devlink_register(pf->devlink);
	return 0;
}

void sv_mlx5_unregister(struct sv_pf *pf)
{
	devlink_unregister(pf->devlink);
	debugfs_remove_recursive(pf->debugfs);
	if (pf->dev)
		sv_mlx5_remove_rdma(pf->dev);
	devlink_free(pf->devlink);
}

static int probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	return sv_probe(pdev, true);
}

static struct pci_driver driver = {
	.id_table = sv_ids, .probe = probe, .remove = sv_remove, .sriov_configure = sv_sriov,
};

static int __init simvf_mlx5_init(void)
{
	if (!mlx5)
		return 0;
	debugfs = debugfs_create_dir("simvf", NULL);
	driver.name = mlx5_driver;
	return pci_register_driver(&driver);
}
device_initcall(simvf_mlx5_init);
MODULE_LICENSE("GPL");
