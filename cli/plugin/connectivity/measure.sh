# Runs in the pod that measures: ib_write_bw from each of its devices to those of the server, as PAIRS names them.
# PAIRS has FROM:TO, indexes of rails. SERVER is the other pod's address, PORT that of its first device, SECONDS_EACH how
# long a measurement takes.
say() { printf 'mooring-connectivity\t%s\t%s\t%s\n' "$1" "$2" "$3"; }

# measure DEVICE PORT: sets `rate` in Gb/s, or `fault`. It is tried again where nobody listens, as a server starts again
# after each client, and where ib_write_bw ends well with messages but a rate of 0, which happens on a busy CPU. Where
# nothing arrives it ends well too, with neither.
measure() {
  for _ in 1 2 3 4 5; do
    timeout $((SECONDS_EACH + 20)) ib_write_bw -d "$1" -p "$2" -D "$SECONDS_EACH" -F --report_gbits "$SERVER" \
      >"$said" 2>&1
    status=$?
    # The last line of numbers: bytes, iterations, Gb/s at the peak and on average, messages.
    result=$(awk 'NF == 5 && $1 ~ /^[0-9]+$/ { result = $2 " " $4 } END { print result }' "$said")
    messages=${result% *} rate=${result#* }
    if [ $status = 0 ] && [ -n "$result" ]; then
      awk "BEGIN { exit !($rate > 0) }" && return 0
      [ "$messages" != 0 ] || { fault="nothing arrived in $SECONDS_EACH s"; return 1; }
      fault="ib_write_bw gave no rate for $messages messages"
    elif [ $status = 124 ]; then
      fault="ib_write_bw did not end in $((SECONDS_EACH + 20)) s"
      return 1
    else
      fault=$(grep -v '^[- ]*$' "$said" | tail -n 1 | tr '\t' ' ')
      grep -q "Couldn't connect" "$said" || return 1
    fi
    sleep 1
  done
  return 1
}

devices=$(echo "${NCCL_IB_HCA-}" | tr -d = | tr , ' ')
[ -n "$devices" ] || { say fault - 'NCCL_IB_HCA is empty: the pod has no RDMA devices whose names are known'; exit 1; }
command -v ib_write_bw >/dev/null || { say fault - 'the image has no ib_write_bw (perftest)'; exit 1; }
said=$(mktemp)
for pair in $PAIRS; do
  # shellcheck disable=SC2086 # a list of words
  set -- $devices
  shift "${pair%:*}"
  if measure "$1" $((PORT + ${pair#*:})); then say measured "$pair" "$rate"; else say failed "$pair" "$fault"; fi
done
say done - -
