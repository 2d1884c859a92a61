#!/bin/sh
# A Prolog of Slurm: it fetches and verifies the kernel cache of a job on its nodes, as the user of the job, before the
# job starts. The job names the image:   #SBATCH --comment=gkm:registry.example/team/caches/llama:1
# and runs its program with it:          srun gkm exec --cache registry.example/team/caches/llama:1 ... -- python serve.py
# docs/how-to/slurm.md explains it. slurm.conf: Prolog=/etc/slurm/prolog.d/gkm.sh and PrologFlags=Alloc
#
# Slurm drains a node whose Prolog fails, and any user can name a wrong image. So this script always ends with 0: the
# reason is in the system's log, and `gkm exec` in the job reports it again.
PATH=/opt/gkm/bin:/usr/local/bin:/usr/bin:/bin
CONFIG=/etc/gkm/config.yaml
# On a disk of the node; below it a directory for each user, because content belongs to the user who fetched it.
STORE=/var/lib/gkm-slurm
# Slurm waits for a Prolog (PrologEpilogTimeout). What was fetched by then, the job continues.
SECONDS_AT_MOST=300
# Other values of these, if any.
SETTINGS=/etc/default/gkm-slurm
# shellcheck source=/dev/null
if [ -r "$SETTINGS" ]; then . "$SETTINGS"; fi

end() {
  message="job ${SLURM_JOB_ID:-without id}: $1"
  logger --tag gkm-prolog -- "$message" 2>/dev/null || echo "gkm-prolog: $message" >&2
  exit 0
}

case ${SLURM_JOB_COMMENT:-} in
  gkm:*) image=${SLURM_JOB_COMMENT#gkm:} ;;
  *) exit 0 ;;
esac
case ${SLURM_JOB_UID:-} in
  '' | *[!0-9]*) end "SLURM_JOB_UID is no user id" ;;
esac
account=$(getent passwd "$SLURM_JOB_UID") || end "user $SLURM_JOB_UID does not exist on this node"
group=$(echo "$account" | cut -d: -f4)
home=$(echo "$account" | cut -d: -f6)
install -d -m 755 "$STORE" || end "there is no directory $STORE"
install -d -m 700 -o "$SLURM_JOB_UID" -g "$group" "$STORE/$SLURM_JOB_UID" || end "no directory for the user in $STORE"

# The user chose the image and its registry, so nothing of this runs as root or with the environment of slurmd.
if output=$(timeout "$SECONDS_AT_MOST" setpriv --reuid="$SLURM_JOB_UID" --regid="$group" --init-groups --no-new-privs \
  env -i PATH="$PATH" HOME="$home" \
  gkm exec --prepare --cache "$image" --config "$CONFIG" --store "$STORE/$SLURM_JOB_UID" 2>&1); then
  end "$image is on this node"
fi
end "$image is not on this node: $(printf '%s' "$output" | tail -n 1 | cut -c 1-400)"
