# Runs in the pod that measures: ib_write_bw from each of its devices to those of the server, as PAIRS names them.
# PAIRS has FROM:TO, indexes of rails. SERVER is the other pod's address, PORT that of its first device, SECONDS_EACH how
# long a measurement takes.
say() { printf 'mooring-connectivity\t%s\t%s\t%s\n' "$1" "$2" "$3"; }

# measure DEVICE PORT: sets `rate` in Gb/s, or `fault`. It is tried again where nobody listens, as a server starts again
# after each client. ib_write_bw divides by the CPU's clock, which it estimates: on a busy CPU it finds none, and gives a
# rate of 0 (perftest's get_clock.c, sample_get_cpu_mhz). So the rate is computed from the messages that it counts, all
# but in the first and the last quarter (perftest_resources.c, catch_alarm; perftest_parameters.c, margin). Where nothing
# arrives it ends well too, with neither.
measure() {
  for _ in 1 2 3 4 5; do
    timeout $((SECONDS_EACH + 20)) ib_write_bw -d "$1" -p "$2" -D "$SECONDS_EACH" -F --report_gbits "$SERVER" \
      >"$said" 2>&1
    status=$?
    # The last line of numbers: bytes, messages, Gb/s at the peak and on average, millions of messages a second.
    result=$(awk 'NF == 5 && $1 ~ /^[0-9]+$/ { result = $1 " " $2 } END { print result }' "$said")
    bytes=${result% *} messages=${result#* } sampled=$((SECONDS_EACH - SECONDS_EACH / 4 * 2))
    if [ $status = 0 ] && [ -n "$result" ]; then
      [ "$messages" != 0 ] || { fault="nothing arrived in $SECONDS_EACH s"; return 1; }
      rate=$(awk "BEGIN { printf \"%.2f\", $bytes * $messages * 8 / $sampled / 1e9 }")
      return 0
    elif [ $status = 124 ]; then
      fault="ib_write_bw did not end in $((SECONDS_EACH + 20)) s"
      return 1
    fi
    fault=$(grep -v '^[- ]*$' "$said" | tail -n 1 | tr '\t' ' ')
    grep -q "Couldn't connect" "$said" || return 1
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
