# Runs in the pod that is measured against: one ib_write_bw a device that serves one client after another.
# PORT is that of the first device, SECONDS_EACH how long a measurement takes. NCCL_IB_HCA is set by Mooring: the pod's
# RDMA devices in the order of its interfaces, so the rails of the test in their order.
say() { printf 'mooring-connectivity\t%s\t%s\n' "$1" "$2"; }

devices=$(echo "${NCCL_IB_HCA-}" | tr -d = | tr , ' ')
[ -n "$devices" ] || { say fault 'NCCL_IB_HCA is empty: the pod has no RDMA devices whose names are known'; exit 1; }
command -v ib_write_bw >/dev/null || { say fault 'the image has no ib_write_bw (perftest)'; exit 1; }
port=$PORT
for device in $devices; do
  while :; do ib_write_bw -d "$device" -p "$port" -D "$SECONDS_EACH" -F --report_gbits || sleep 1; done >/dev/null 2>&1 &
  port=$((port + 1))
done
say ready "$devices"
wait
