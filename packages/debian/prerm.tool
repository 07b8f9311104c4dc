#!/bin/sh
# Refuses to remove the tool while it is needed to bring something back: a process that is checkpointed.
set -e
tool=/usr/bin/cudasnap
[ "$1" = remove ] || exit 0
[ -x "$tool" ] || exit 0
waiting=
for pid in $(grep -l 'libcudasnap\.so' /proc/[0-9]*/maps 2>/dev/null | cut -d/ -f3 || true); do
    if "$tool" status --json "$pid" 2>/dev/null | grep -q '"state":"checkpointed"'; then
        waiting="$waiting$pid "
    fi
done
[ -z "$waiting" ] && exit 0
echo "cudasnap: checkpointed, and waiting to be restored: ${waiting}(cudasnap restore PID). Restore or end them first, or leave this package installed." >&2
exit 1
