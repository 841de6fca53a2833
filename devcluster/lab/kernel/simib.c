// SPDX-License-Identifier: GPL-2.0
/* An InfiniBand HCA with SR-IOV on the in-memory PCI functions of simpci: mlx5_core and mlx5_ib with the port type IB.
 *
 * The PCI part, the RDMA core, uverbs, umad and IPoIB are the kernel's own; this driver makes the verbs devices of the
 * PF and its VFs, and answers for their firmware. Objects can be made by user space and by the kernel; no data passes
 * between functions. A subnet manager is behind the wire: it activates ports, and lets IPoIB join its broadcast group.
 * Functions named in comments are of drivers/infiniband/hw/mlx5 and drivers/net/ethernet/mellanox/mlx5/core in 6.12.
 */
#include <linux/if_link.h>
#include <linux/module.h>
#include <net/devlink.h>
#include <rdma/ib_mad.h>
#include "simib.h"

#define MAXVF 128
#define CLASS_INFINIBAND 0x020700	/* an InfiniBand controller, which pci_ids.h does not name */
/* Which PFs are InfiniBand: bit 0 is function 0. The driver's name is a parameter, since programs know drivers by it. */
static uint pfs;
static char *driver = "mlx5_core";
module_param(pfs, uint, 0444);
module_param(driver, charp, 0444);
/* How long the subnet manager takes to activate a port whose policy lets it, in ms; 0: it never does. */
static uint active_ms = 2000;
module_param(active_ms, uint, 0644);
/* Functions whose IPoIB netdev cannot be made, as where ib_ipoib is not loaded: 1 PFs, 2 VFs. */
static uint no_ipoib;
module_param(no_ipoib, uint, 0644);
/* Nonzero: the errno of every query of a queue pair, as a function in a bad state answers. */
uint sib_query_qp_errno;
module_param_named(query_qp_errno, sib_query_qp_errno, uint, 0644);

/* enum port_state_policy of include/linux/mlx5/port.h; 0 is what a vport starts with. */
enum sib_policy { POLICY_DOWN, POLICY_UP, POLICY_FOLLOW };

/* What the firmware keeps for a VF's vport, and what the PF's driver remembers of it (struct mlx5_vf_context). */
struct sib_vport { u64 node_guid, port_guid; enum sib_policy policy; };
struct sib_vf { struct sib_vport fw, remembered; struct sib_dev *dev; };
struct sib_pf {
	struct pci_dev *pdev;
	struct devlink *devlink;
	struct sib_dev *dev;
	struct mutex lock;	/* vf[] and the states of the VFs' ports */
	struct sib_vf vf[MAXVF];
};

/* The device and its port */

static u64 sib_pf_guid(const struct sib_pf *pf) { return 0x0c42a10300123450ULL + PCI_FUNC(pf->pdev->devfn); }

static int sib_query_device(struct ib_device *ib, struct ib_device_attr *attr, struct ib_udata *udata)
{
	struct sib_dev *dev = DEV(ib);

	*attr = (struct ib_device_attr){
		.fw_ver = 20ULL << 32 | 42 << 16 | 1000, .vendor_id = 0x2c9, .vendor_part_id = dev->pdev->device,
		.sys_image_guid = cpu_to_be64(0x0c42a10300123450ULL),
		.max_mr_size = ~0ULL, .page_size_cap = PAGE_SIZE, .max_qp = 1 << 17, .max_qp_wr = 1 << 15,
		.max_send_sge = 30, .max_recv_sge = 32, .max_cq = 1 << 24, .max_cqe = (1 << 22) - 1, .max_mr = 1 << 24,
		.max_pd = 1 << 23, .max_ah = INT_MAX, .max_mcast_grp = 1 << 21, .max_mcast_qp_attach = 240, .max_pkeys = 128,
		/* A VF is one to IPoIB by this flag: ipoib_intf_init. Source: mlx5_ib_query_device. */
		.kernel_cap_flags = IBK_LOCAL_DMA_LKEY | (dev->vf >= 0 ? IBK_VIRTUAL_FUNCTION : 0),
	};
	return 0;
}

static int sib_query_port(struct ib_device *ib, u32 port, struct ib_port_attr *attr)
{
	struct sib_dev *dev = DEV(ib);
	bool active = dev->state == IB_PORT_ACTIVE;

	attr->state = dev->state;
	attr->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	attr->lid = active ? dev->pdev->devfn + 2 : 0;
	attr->sm_lid = active ? 1 : 0;
	attr->max_mtu = attr->active_mtu = IB_MTU_4096;
	attr->gid_tbl_len = 8;
	attr->pkey_tbl_len = 128;
	attr->port_cap_flags = IB_PORT_CM_SUP | IB_PORT_SYS_IMAGE_GUID_SUP;
	attr->max_msg_sz = 1 << 30;
	attr->subnet_timeout = 18;
	attr->max_vl_num = 4;
	attr->active_width = IB_WIDTH_4X;
	attr->active_speed = IB_SPEED_HDR;
	return 0;
}

static int sib_port_immutable(struct ib_device *ib, u32 port, struct ib_port_immutable *fixed)
{
	fixed->pkey_tbl_len = 128;
	fixed->gid_tbl_len = 8;
	fixed->core_cap_flags = RDMA_CORE_PORT_IBA_IB;
	fixed->max_mad_size = IB_MGMT_MAD_SIZE;
	return 0;
}

static enum rdma_link_layer sib_link_layer(struct ib_device *ib, u32 port) { return IB_LINK_LAYER_INFINIBAND; }
static int sib_modify_port(struct ib_device *ib, u32 port, int mask, struct ib_port_modify *how) { return 0; }
static int sib_query_pkey(struct ib_device *ib, u32 port, u16 index, u16 *pkey) { *pkey = index ? 0 : 0xffff; return 0; }
static void sib_fw_str(struct ib_device *ib, char *text) { strscpy(text, "20.42.1000", IB_FW_VERSION_NAME_MAX); }
static int sib_query_gid(struct ib_device *ib, u32 port, int index, union ib_gid *gid)
{
	gid->global.subnet_prefix = cpu_to_be64(0xfe80000000000000ULL);
	gid->global.interface_id = cpu_to_be64(index ? 0 : DEV(ib)->port_guid);
	return 0;
}

/* Refused where asked to: ipoib_intf_init gives up on any error but "not supported". */
static int sib_netdev_params(struct ib_device *ib, u32 port, enum rdma_netdev_t type,
			     struct rdma_netdev_alloc_params *params)
{ return no_ipoib & (DEV(ib)->vf < 0 ? 1 : 2) ? -ENODEV : -EOPNOTSUPP; }

static void sib_set_state(struct sib_dev *dev, enum ib_port_state state)
{
	struct ib_event event = { .device = &dev->ib, .element.port_num = 1 };
	bool was_active = dev->state == IB_PORT_ACTIVE;

	dev->state = state;
	event.event = state == IB_PORT_ACTIVE ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR;
	if (was_active != (state == IB_PORT_ACTIVE))
		ib_dispatch_event(&event);
}

static void sib_activate(struct work_struct *work)
{
	struct sib_dev *dev = container_of(to_delayed_work(work), struct sib_dev, activate);

	mutex_lock(&dev->pf->lock);
	if (dev->state == IB_PORT_INIT)
		sib_set_state(dev, IB_PORT_ACTIVE);
	mutex_unlock(&dev->pf->lock);
}

/* Apply a vport's policy to the VF's port: Down keeps it down, else it is initialized and waits for the subnet manager. */
static void sib_follow_policy(struct sib_dev *dev, enum sib_policy policy)
{
	if (policy == POLICY_DOWN) {
		sib_set_state(dev, IB_PORT_DOWN);
	} else if (dev->state == IB_PORT_DOWN) {
		dev->state = IB_PORT_INIT;
		if (active_ms)
			schedule_delayed_work(&dev->activate, msecs_to_jiffies(active_ms));
	}
}

/* The PF's operations on its VFs, as in ib_virt.c: nothing but link state and GUIDs exists. */

static struct sib_vf *sib_vf(struct ib_device *ib, int n)	/* the firmware knows the vports of existing VFs only */
{ return n >= 0 && n < min(pci_num_vf(DEV(ib)->pdev), MAXVF) ? &DEV(ib)->pf->vf[n] : NULL; }

/* mlx5_ib_get_vf_config: all zeros but the link state; ipoib_get_vf_config adds number and PF address. */
static int sib_get_vf_config(struct ib_device *ib, int n, u32 port, struct ifla_vf_info *info)
{
	static const u32 shown[] = { IFLA_VF_LINK_STATE_DISABLE, IFLA_VF_LINK_STATE_ENABLE, IFLA_VF_LINK_STATE_AUTO };
	struct sib_vf *vf = sib_vf(ib, n);

	if (!vf)
		return -EINVAL;
	memset(info, 0, sizeof(*info));
	info->linkstate = shown[vf->fw.policy];
	return 0;
}

/* mlx5_ib_set_vf_link_state */
static int sib_set_vf_link_state(struct ib_device *ib, int n, u32 port, int state)
{
	struct sib_vf *vf = sib_vf(ib, n);

	if (!vf || state < 0 || state > IFLA_VF_LINK_STATE_DISABLE)
		return -EINVAL;
	mutex_lock(&DEV(ib)->pf->lock);
	vf->fw.policy = state == IFLA_VF_LINK_STATE_DISABLE ? POLICY_DOWN :
			state == IFLA_VF_LINK_STATE_ENABLE ? POLICY_UP : POLICY_FOLLOW;
	vf->remembered.policy = vf->fw.policy;
	if (vf->dev)
		sib_follow_policy(vf->dev, vf->fw.policy);
	mutex_unlock(&DEV(ib)->pf->lock);
	return 0;
}

/* mlx5_ib_set_vf_guid: the vport has it at once, a bound VF has read its own before (mlx5_query_node_guid). */
static int sib_set_vf_guid(struct ib_device *ib, int n, u32 port, u64 guid, int type)
{
	struct sib_vf *vf = sib_vf(ib, n);

	if (!vf)
		return -EINVAL;
	if (type == IFLA_VF_IB_NODE_GUID)
		vf->fw.node_guid = vf->remembered.node_guid = guid;
	else
		vf->fw.port_guid = vf->remembered.port_guid = guid;
	return 0;
}

/* mlx5_ib_get_vf_guid: what was set since the PF's driver was bound, and zeros before. */
static int sib_get_vf_guid(struct ib_device *ib, int n, u32 port, struct ifla_vf_guid *node, struct ifla_vf_guid *own)
{
	struct sib_vf *vf = sib_vf(ib, n);

	if (!vf)
		return -EINVAL;
	node->guid = vf->remembered.node_guid;
	own->guid = vf->remembered.port_guid;
	return 0;
}

static int sib_get_vf_stats(struct ib_device *ib, int n, u32 port, struct ifla_vf_stats *stats)
{ return sib_vf(ib, n) ? 0 : -EINVAL; }

static const struct ib_device_ops sib_ops = {
	.owner = THIS_MODULE, .driver_id = RDMA_DRIVER_UNKNOWN, .uverbs_abi_ver = 1,
	.get_dev_fw_str = sib_fw_str, .get_link_layer = sib_link_layer, .get_port_immutable = sib_port_immutable,
	.modify_port = sib_modify_port, .query_device = sib_query_device, .query_gid = sib_query_gid,
	.query_pkey = sib_query_pkey, .query_port = sib_query_port, .rdma_netdev_get_params = sib_netdev_params,
};
/* A PF's only: mlx5_ib_dev_sriov_ops. */
static const struct ib_device_ops sib_sriov_ops = {
	.get_vf_config = sib_get_vf_config, .get_vf_guid = sib_get_vf_guid, .get_vf_stats = sib_get_vf_stats,
	.set_vf_guid = sib_set_vf_guid, .set_vf_link_state = sib_set_vf_link_state,
};

/* PCI functions */

static struct sib_dev *sib_register(struct sib_pf *pf, struct pci_dev *pdev, int n)
{
	struct sib_dev *dev = ib_alloc_device(sib_dev, ib);
	const struct sib_vport *vport = n < 0 ? NULL : &pf->vf[n].fw;
	int failed;

	if (!dev)
		return ERR_PTR(-ENOMEM);
	dev->pf = pf;
	dev->pdev = pdev;
	dev->vf = n;
	dev->state = n < 0 ? IB_PORT_ACTIVE : IB_PORT_DOWN;
	INIT_DELAYED_WORK(&dev->activate, sib_activate);
	atomic_set(&dev->next_qpn, 0x100 + pdev->devfn);
	dev->ib.node_type = RDMA_NODE_IB_CA;
	dev->ib.phys_port_cnt = 1;
	dev->ib.num_comp_vectors = 1;
	dev->ib.dev.parent = &pdev->dev;
	strscpy(dev->ib.node_desc, "simib", sizeof(dev->ib.node_desc));
	/* Once, at probe: mlx5_ib_stage_caps_init's get_node_guid. A vport that was given none has zeros. */
	dev->ib.node_guid = cpu_to_be64(vport ? vport->node_guid : sib_pf_guid(pf));
	dev->port_guid = vport ? vport->port_guid : sib_pf_guid(pf);
	ib_set_device_ops(&dev->ib, &sib_ops);
	ib_set_device_ops(&dev->ib, &sib_queue_ops);
	if (n < 0)
		ib_set_device_ops(&dev->ib, &sib_sriov_ops);
	failed = ib_register_device(&dev->ib, "mlx5_%d", NULL);
	if (failed) {
		ib_dealloc_device(&dev->ib);
		return ERR_PTR(failed);
	}
	return dev;
}

static void sib_unregister(struct sib_dev *dev)
{
	cancel_delayed_work_sync(&dev->activate);
	ib_unregister_device(&dev->ib);
	ib_dealloc_device(&dev->ib);
}

static int sib_probe_vf(struct pci_dev *pdev)
{
	struct sib_pf *pf = pci_get_drvdata(pdev->physfn);
	int n = pci_iov_vf_id(pdev);
	struct sib_dev *dev;

	if (n < 0 || n >= MAXVF)
		return -ENODEV;
	pdev->device = 0x101c;
	pdev->class = CLASS_INFINIBAND;
	dev = sib_register(pf, pdev, n);
	if (IS_ERR(dev))
		return PTR_ERR(dev);
	pci_set_drvdata(pdev, dev);
	mutex_lock(&pf->lock);
	pf->vf[n].dev = dev;
	sib_follow_policy(dev, pf->vf[n].fw.policy);
	mutex_unlock(&pf->lock);
	return 0;
}

/* mlx5_devlink_eswitch_mode_get: a port type without an eswitch (mlx5_eswitch_check). */
static int sib_eswitch_mode(struct devlink *devlink, u16 *mode) { return -EOPNOTSUPP; }
static const struct devlink_ops sib_devlink_ops = { .eswitch_mode_get = sib_eswitch_mode };
static struct pci_driver sib_driver;

static int sib_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct sib_pf *pf;
	int failed;

	if (pdev->is_virtfn)
		return pdev->physfn->driver == &sib_driver ? sib_probe_vf(pdev) : -ENODEV;
	if (!(pfs & 1 << PCI_FUNC(pdev->devfn)))
		return -ENODEV;
	pf = kzalloc(sizeof(*pf), GFP_KERNEL);
	if (!pf)
		return -ENOMEM;
	mutex_init(&pf->lock);
	pf->pdev = pdev;
	pci_set_drvdata(pdev, pf);
	failed = pci_enable_device(pdev);
	if (failed)
		goto free;
	pci_set_master(pdev);
	pdev->vendor = 0x15b3;
	pdev->device = 0x101b;
	pdev->class = CLASS_INFINIBAND;
	pf->devlink = devlink_alloc(&sib_devlink_ops, 0, &pdev->dev);
	failed = pf->devlink ? 0 : -ENOMEM;
	if (failed)
		goto disable;
	pf->dev = sib_register(pf, pdev, -1);
	failed = PTR_ERR_OR_ZERO(pf->dev);
	if (failed)
		goto devlink;
	devlink_register(pf->devlink);
	return 0;
devlink:
	devlink_free(pf->devlink);
disable:
	pci_disable_device(pdev);
free:
	kfree(pf);
	return failed;
}

static void sib_remove(struct pci_dev *pdev)
{
	struct sib_pf *pf;

	if (pdev->is_virtfn) {
		struct sib_dev *dev = pci_get_drvdata(pdev);

		mutex_lock(&dev->pf->lock);
		dev->pf->vf[dev->vf].dev = NULL;
		mutex_unlock(&dev->pf->lock);
		sib_unregister(dev);
		return;
	}
	pf = pci_get_drvdata(pdev);
	pci_disable_sriov(pdev);
	devlink_unregister(pf->devlink);
	sib_unregister(pf->dev);
	devlink_free(pf->devlink);
	pci_disable_device(pdev);
	kfree(pf);
}

/* mlx5_device_enable_sriov: new vports, with what the driver remembers of them (sriov_restore_guids, for IB only; it
 * does not write the policy Down). What was remembered lasts until the PF's driver is unbound.
 */
static int sib_sriov(struct pci_dev *pdev, int n)
{
	struct sib_pf *pf = pci_get_drvdata(pdev);
	int i, failed;

	if (!n) {
		pci_disable_sriov(pdev);
		return 0;
	}
	for (i = 0; i < MAXVF; i++)
		pf->vf[i].fw = pf->vf[i].remembered;
	failed = pci_enable_sriov(pdev, n);
	return failed ? failed : n;
}

/* The last two are what a bound function's are changed to: ConnectX-6 and its VF. */
static const struct pci_device_id sib_ids[] = {
	{ PCI_DEVICE(0x15b3, 0x101d) }, { PCI_DEVICE(0x15b3, 0x101e) },
	{ PCI_DEVICE(0x15b3, 0x101b) }, { PCI_DEVICE(0x15b3, 0x101c) }, { }
};
static struct pci_driver sib_driver = {
	.id_table = sib_ids, .probe = sib_probe, .remove = sib_remove, .sriov_configure = sib_sriov,
};

static int __init sib_init(void)
{
	sib_driver.name = driver;
	return pfs ? pci_register_driver(&sib_driver) : 0;
}
device_initcall(sib_init);	/* before simvf, which takes every function that this driver declines */
MODULE_LICENSE("GPL");
