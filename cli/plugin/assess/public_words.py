"""Words that say nothing about a cluster: fields, values and keys of Kubernetes, of what is around it, and of sysfs.

`stand_ins` keeps them wherever they are. A word that is missing here costs at most a finding in the shared archive.
"""

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Fields of objects that a finding, a rule of `lint` or a decision reads; of JSON in annotations, of CNI configurations.
FIELDS = _words("""
    apiVersion kind metadata spec status items name names namespace namespaces uid resourceVersion generation labels
    parentCompositePodGroupName minCount gang schedulingPolicy schedulingConstraints topology disruptionMode
    annotations ownerReferences controller creationTimestamp deletionTimestamp finalizers accessModes affinity
    allocatable allocatedResources allowedTopologies attacher bootID capacity
    claimName claimRef conditions containers count csi disruptedPods disruptionsAllowed driver drivers
    effect ephemeral finishedAt hostNetwork hostPort initContainers key labelSelector
    lastState lastTransitionTime limits matchExpressions matchFields matchLabelExpressions matchLabelKeys
    matchLabels maxSkew maximumVolumeSize minDomains mismatchLabelKeys namespaceSelector nodeAffinity
    nodeAffinityPolicy nodeName nodeSelector nodeSelectorTerms nodeTaintsPolicy nodeTopology nominatedNodeName
    operator overhead persistentVolumeClaim persistentVolumeName phase podAffinity podAffinityTerm
    podAntiAffinity podGroup podGroupName pool ports preemptionPolicy preference
    preferredDuringSchedulingIgnoredDuringExecution priority protocol provisioner readOnly reason reference
    requests required requiredDuringSchedulingIgnoredDuringExecution resourceClaimName resourceClaimStatuses
    resourceClaims resources restartCount restartPolicy running runtimeClassName schedulerName schedulingGates
    schedulingGroup selector sizeBytes source startTime startedAt state storageCapacity storageClassName taints
    terminated tolerations topologyKey topologyKeys topologySpreadConstraints type unschedulable value values
    volumeAttributesClassName volumeBindingMode volumeHandle volumeMode volumeName volumes
    waiting weight whenUnsatisfiable workloadRef hostPath path mountPath volumeMounts securityContext
    privileged dnsPolicy qosClass timeAdded priorityClassName hostPID hostIPC containerPort storage replicas
    template parallelism completions completionMode suspend succeeded failed active ready minMember replicatedJobs
    startupPolicy startupPolicyOrder dependsOn coordinator successPolicy failurePolicy network subdomain
    leaderWorkerTemplate leaderTemplate workerTemplate size launcherCreationPolicy pytorchReplicaSpecs
    mpiReplicaSpecs tfReplicaSpecs Master Worker Launcher PS Chief elasticPolicy minReplicas maxReplicas
    headGroupSpec workerGroupSpecs groupName numOfHosts rayClusterSpec jobTemplate serviceName podManagementPolicy
    volumeClaimTemplates submissionMode enableInTreeAutoscaling submitterPodTemplate backoffLimit
    ttlSecondsAfterFinished activeDeadlineSeconds devices device exactly firstAvailable deviceClassName
    allocationMode selectors cel expression constraints matchAttribute adminAccess allocation results request
    reservedFor resource basic attributes string int bool version allNodes resourceSliceCount
    resourceClaimTemplateName poolName config cniVersion plugins link mode master deviceID vlan vlanQoS vlanProto
    spoofchk spoofChk trust link_state linkState min_tx_rate max_tx_rate minTxRate maxTxRate rdmaIsolation
    ibKubernetesEnabled capabilities mtu interface interfaceName default mac guid infiniband-guid device-info pci
    pci-address vhost-net rdma-device rdma memif vdpa pf-pci-address v vf vfs pf pfs qos ext gpu gpus units pcie
    index rails rack racks prefer within spread distinct levels disruption min max max_share name_from together
    group mbps memory_mb vendor numa netdev netdevs stride pack set_aside offer_mbps reserved tested port strict
    model boot taken_at held uuid uuids
""")

WORDS = _words("""
    True False Unknown Always Never OnFailure IfNotPresent Running Pending Succeeded Failed Active Terminating Ready
    PodScheduled Initialized ContainersReady PodReadyToStartContainers DisruptionTarget PodResizePending
    PodResizeInProgress MemoryPressure DiskPressure PIDPressure NetworkUnavailable Unschedulable SchedulingGated
    SchedulerError PreemptionByScheduler DeletionByTaintManager EvictionByEvictionAPI TerminationByKubelet
    KubeletReady KubeletNotReady NodeStatusUnknown Evicted NodeLost OOMKilled Error Completed CrashLoopBackOff
    ImagePullBackOff ErrImagePull ContainerCreating PodInitializing CreateContainerConfigError Complete
    SuccessCriteriaMet FailureTarget Suspended JobSuspended BackoffLimitExceeded DeadlineExceeded Created Restarting
    Available Progressing ReplicaFailure Bound Released Lost In NotIn Exists DoesNotExist Gt Lt Equal NoSchedule
    NoExecute PreferNoSchedule DoNotSchedule ScheduleAnyway Honor Ignore PreemptLowerPriority ClusterFirst
    ClusterFirstWithHostNet Default None Guaranteed Burstable BestEffort Indexed NonIndexed TCP UDP SCTP Immediate
    WaitForFirstConsumer ReadWriteOnce ReadOnlyMany ReadWriteMany ReadWriteOncePod Filesystem Block Retain Delete
    Recycle ExactCount All FirstAvailable AnyOrder InOrder LeaderCreated LeaderReady OrderedReady Parallel Node Pod
    Job CronJob JobSet Deployment DaemonSet StatefulSet ReplicaSet ReplicationController Service Namespace
    LeaderWorkerSet MPIJob PyTorchJob TFJob JAXJob PaddleJob XGBoostJob TrainJob RayCluster RayJob RayService
    PodGroup Workload RuntimeClass PersistentVolume PersistentVolumeClaim StorageClass CSINode CSIDriver
    CSIStorageCapacity VolumeAttachment PodDisruptionBudget ResourceClaim ResourceClaimTemplate ResourceSlice
    DeviceClass NetworkAttachmentDefinition true false null none on off auto default enable disable pods pod group
    same index switch numa root link ethernet infiniband legacy switchdev bridge private vepa passthru l2 l3 l3s pci
    rdma vdpa vfio held taking returning ready failed pool amd nvidia intel linux amd64 arm64 worker launcher sriov
    ib-sriov ib-sriov-cni host-device macvlan ipvlan ipoib vlan bond tuning bandwidth portmap firewall sbr vrf ovs
    ptp loopback host-local static dhcp whereabouts nv-ipam flannel calico cilium-cni ovn-k8s-cni-overlay multus
    default-scheduler volcano kai-scheduler koord-scheduler scheduler-plugins-scheduler mooring dra.net dra.cpu
    gpu.nvidia.com compute-domain.nvidia.com gpu.amd.com gpu.intel.com sriovnetwork.k8snetworkplumbingwg.io
    metadata.name /dev/infiniband /dev mlx4_core mlx5_core mlx5_ib ice iavf i40e ixgbe ixgbevf igb igbvf bnxt_en
    bnxt_re irdma ena efa qede qed sfc enic be2net cxgb4 hns3 hinic ionic erdma nfp octep liquidio fm10k hfi1 qib
    gve mana virtio-pci vfio-pci uio_pci_generic igb_uio mooring-cni mooring-advertiser mooring-cri-shim
    mooring-hook spec.nodeName spec.unschedulable
""")

# Keys of labels, annotations, resources and attributes, whose values are replaced as all others.
KEYS = _words("""
    cpu memory pods storage ephemeral-storage rack app role rdma_interfaces_required pod-template-hash job-name
    controller-uid controller-revision-hash statefulset.kubernetes.io/pod-name apps.kubernetes.io/pod-index
    kubernetes.io/hostname kubernetes.io/os kubernetes.io/arch kubernetes.io/metadata.name
    kubernetes.io/config.mirror kubernetes.io/config.source kubernetes.io/config.hash kubernetes.io/config.seen
    kubernetes.io/no-provisioner kubernetes.io/aws-ebs kubernetes.io/azure-disk kubernetes.io/cinder
    kubernetes.io/gce-pd kubernetes.io/portworx-volume kubernetes.io/vsphere-volume
    node-role.kubernetes.io/control-plane node-role.kubernetes.io/master node-role.kubernetes.io/worker
    node.kubernetes.io/instance-type node.kubernetes.io/not-ready node.kubernetes.io/unreachable
    node.kubernetes.io/unschedulable node.kubernetes.io/memory-pressure node.kubernetes.io/disk-pressure
    node.kubernetes.io/pid-pressure node.kubernetes.io/network-unavailable node.kubernetes.io/out-of-service
    node.cloudprovider.kubernetes.io/uninitialized node.kubernetes.io/exclude-from-external-load-balancers
    topology.kubernetes.io/zone topology.kubernetes.io/region topology.kubernetes.io/rack
    failure-domain.beta.kubernetes.io/zone failure-domain.beta.kubernetes.io/region network.topology.nvidia.com/leaf
    network.topology.nvidia.com/spine network.topology.nvidia.com/core network.topology.nvidia.com/accelerator
    network.topology.kubernetes.io/leaf topology.k8s.aws/network-node-layer-1 topology.k8s.aws/network-node-layer-2
    topology.k8s.aws/network-node-layer-3 cloud.google.com/gce-topology-block cloud.google.com/gce-topology-subblock
    cloud.google.com/gce-topology-host oci.oraclecloud.com/rdma.local_block_id
    oci.oraclecloud.com/rdma.network_block_id oci.oraclecloud.com/rdma.hpc_island_id app.kubernetes.io/name
    app.kubernetes.io/instance app.kubernetes.io/component app.kubernetes.io/part-of app.kubernetes.io/managed-by
    app.kubernetes.io/version batch.kubernetes.io/job-name batch.kubernetes.io/controller-uid
    batch.kubernetes.io/job-completion-index batch.kubernetes.io/job-index-failure-count
    jobset.sigs.k8s.io/jobset-name jobset.sigs.k8s.io/jobset-uid jobset.sigs.k8s.io/replicatedjob-name
    jobset.sigs.k8s.io/replicatedjob-replicas jobset.sigs.k8s.io/job-index jobset.sigs.k8s.io/job-key
    jobset.sigs.k8s.io/job-global-index jobset.sigs.k8s.io/restart-attempt
    alpha.jobset.sigs.k8s.io/exclusive-topology alpha.jobset.sigs.k8s.io/node-selector
    leaderworkerset.sigs.k8s.io/name leaderworkerset.sigs.k8s.io/group-index leaderworkerset.sigs.k8s.io/group-key
    leaderworkerset.sigs.k8s.io/worker-index leaderworkerset.sigs.k8s.io/size
    leaderworkerset.sigs.k8s.io/exclusive-topology leaderworkerset.sigs.k8s.io/leader-name
    training.kubeflow.org/job-name training.kubeflow.org/job-role training.kubeflow.org/operator-name
    training.kubeflow.org/replica-index training.kubeflow.org/replica-type volcano.sh/job-name volcano.sh/queue-name
    volcano.sh/task-spec volcano.sh/task-index scheduling.k8s.io/group-name scheduling.volcano.sh/group-name
    scheduling.x-k8s.io/pod-group pod-group.scheduling.sigs.k8s.io/name gang.scheduling.koordinator.sh/name
    yunikorn.apache.org/task-group-name ray.io/cluster ray.io/group ray.io/node-type ray.io/is-ray-node
    ray.io/worker-group-replica-name k8s.v1.cni.cncf.io/networks k8s.v1.cni.cncf.io/network-status
    k8s.v1.cni.cncf.io/resourceName networking.gke.io/interfaces k8s.volcengine.com/pod-networks
    mooring.dev/assignment mooring.dev/assignment-signature mooring.dev/drain mooring.dev/drain-reasons
    mooring.dev/gpu mooring.dev/group mooring.dev/interfaces mooring.dev/inventory mooring.dev/inventory.gpu
    mooring.dev/network-status mooring.dev/placement mooring.dev/rates mooring.dev/rates-in-force
    mooring.dev/rates-signature mooring.dev/request.gpu mooring.dev/turns mooring.dev/why
    mooring.dev/AdmissionPoliciesBound mooring.dev/InstallFailed mooring.dev/ShimBypassed mooring.dev/VfsImpaired
    rdma-sriov/dev-infiniband-mount rdma-sriov/vf rdma-sriov/mbps tencent.com/rdma nvidia.com/gpu
    nvidia.com/gpu.shared nvidia.com/gpu.present nvidia.com/gpu.product nvidia.com/gpu.count amd.com/gpu
    resource.kubernetes.io/pcieRoot resource.kubernetes.io/pciBusID dra.net/pciAddress dra.net/ifName dra.net/rdma
    dra.net/numaNode dra.net/sriov dra.net/sriovVfs pciAddress pciBusID pcieRoot volume.kubernetes.io/selected-node
    volume.beta.kubernetes.io/storage-class volume.kubernetes.io/storage-provisioner
    volume.beta.kubernetes.io/storage-provisioner pv.kubernetes.io/bind-completed
    pv.kubernetes.io/bound-by-controller pv.kubernetes.io/provisioned-by deployment.kubernetes.io/revision
    metadata.name
""")
_PATTERN_KEYS = re.compile(r"hugepages-[0-9]{1,4}[KMG]i|nvidia\.com/mig-[0-9]g\.[0-9]{1,3}gb", re.ASCII)
_API_GROUPS = (
    "apps batch policy autoscaling storage.k8s.io resource.k8s.io node.k8s.io scheduling.k8s.io scheduling.x-k8s.io"
    " networking.k8s.io jobset.x-k8s.io leaderworkerset.x-k8s.io kubeflow.org trainer.kubeflow.org ray.io"
    " k8s.cni.cncf.io sriovnetwork.openshift.io scheduling.volcano.sh batch.volcano.sh"
)
# Versions of APIs and of CNI, times, amounts.
_FIXED = re.compile(
    rf"(?:(?:{'|'.join(map(re.escape, _API_GROUPS.split()))})/)?v[0-9]{{1,2}}(?:(?:alpha|beta)[0-9]{{1,2}})?"
    r"|[01]\.[0-9]{1,2}\.[0-9]{1,2}"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
    r"|[0-9]{1,6}(?:\.[0-9]{1,3})?(?:[mk]|[KMGTPE]i?)?"
)
AMOUNT = re.compile(r"[0-9]{1,20}(?:\.[0-9]{1,9})?(?:[eE][-+]?[0-9]{1,2}|[numkMGTPE]|[KMGTPE]i)?")
# Names that the kernel and udev make from a device's place, and Multus' and Mooring's of a pod's interfaces. Sources:
# systemd.net-naming-scheme(7); rdma_rename of rdma-core; the kernel's drivers.
_PLACE = r"(?:P[0-9]{1,5})?(?:o[0-9]{1,5}|p[0-9]{1,3}s[0-9]{1,3}|s[0-9]{1,5})(?:f[0-9]{1,3})?"
_INTERFACE = re.compile(
    rf"(?:en|ib|wl|roce|iw){_PLACE}(?:n(?:pf?)?[0-9]{{1,3}}(?:[vs]f[0-9]{{1,4}})?|d[0-9]{{1,5}})?(?:v[0-9]{{1,4}})?"
    r"|(?:eth|ib|net|bond|rxe|irdma|bnxt_re|uverbs)[0-9]{1,4}|lo"
    r"|(?:mlx[45]|erdma|ionic|efa|hfi1)_[0-9]{1,4}|mlx5_bond_[0-9]{1,3}"
)
# What the kernel makes in sysfs: `advertiser.host.capture` takes no other entries.
_SYSFS = _words("""
    sys bus pci devices drivers class net infiniband infiniband_verbs ports driver physfn device vendor numa_node
    type speed operstate carrier dev_port phys_port_name phys_switch_id ifindex iflink parent bonding_slave
    link_layer rate state node_type node_guid sys_image_guid ibdev sriov sriov_totalvfs sriov_numvfs sriov_offset
    sriov_stride sriov_vf_device sriov_drivers_autoprobe captured.json use.json . ..
""")
_SYSFS_PART = re.compile(
    r"(?:pci[0-9a-f]{4,8}:[0-9a-f]{2}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|virtfn[0-9]{1,4}|[0-9]{1,4})?"
)


def is_public(text: str) -> bool:
    """Return whether a whole text is such a word, key, version, time or amount."""
    return text in WORDS or is_public_key(text) or _FIXED.fullmatch(text) is not None


def is_public_key(text: str) -> bool:
    """Return whether a key of a label, annotation, resource or attribute is well known."""
    return text in KEYS or _PATTERN_KEYS.fullmatch(text) is not None


def is_device_name(text: str) -> bool:
    """Return whether the kernel or udev gives this name to a netdev or an RDMA device."""
    return _INTERFACE.fullmatch(text) is not None


def is_sysfs_name(text: str) -> bool:
    """Return whether an entry of sysfs has this name on every machine with such a device."""
    return text in _SYSFS or _SYSFS_PART.fullmatch(text) is not None or text in WORDS
