#!/bin/sh
# Provides programs of the system in a folder: without further arguments those
# that the test cluster needs (nft, ip, iptables with the nf_tables back end and
# iptables-legacy, the DHCP servers dnsmasq and kea-dhcp4), prometheus, and promtool,
# which checks the alert rules. Installs nothing and does not need root. Writes
# FOLDER/env, which sets PATH, LD_LIBRARY_PATH and XTABLES_LIBDIR:
#
#	tools.sh FOLDER && . FOLDER/env
#
# With arguments it provides these instead: PROGRAM=PACKAGE is a program with all
# that its package depends on, PACKAGE or PACKAGE:ARCHITECTURE one package alone,
# unpacked in FOLDER/root.
#
# Programs that are on PATH are used from there. The others come from packages
# of Debian or a derivative: apt downloads them, with its state and cache inside
# the folder, and dpkg-deb unpacks them.
set -eu
[ $# -ge 1 ] || {
	echo "usage: tools.sh FOLDER [PROGRAM=PACKAGE | PACKAGE]..." >&2
	exit 2
}
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
root=$folder/root
# Administration programs may be installed but not on the user's PATH. Programs
# unpacked by an earlier run do not count as installed.
PATH=$(printf '%s' "$PATH" | tr ':' '\n' | grep -vF "$root/" | paste -sd: -):/usr/sbin:/sbin

say() { echo "tools: $*" >&2; }

missing=
alone=
if [ $# -eq 0 ]; then
	# The package of promtool and prometheus depends on others, so it is unpacked
	# without them (both programs need the C library only).
	for program in promtool prometheus; do
		command -v $program >/dev/null 2>&1 || alone=prometheus
	done
	set -- nft=nftables ip=iproute2 iptables=iptables dnsmasq=dnsmasq-base kea-dhcp4=kea-dhcp4-server
fi
architectures=
for word; do
	case $word in
	*=*) command -v "${word%%=*}" >/dev/null 2>&1 || missing="$missing ${word#*=}" ;;
	*) alone="$alone${alone:+ }$word" ;;
	esac
	case $word in
	*:*) architectures="$architectures \"${word#*:}\";" ;;
	esac
done

# Several test binaries may call this concurrently: the first one does the work, the others wait.
if command -v flock >/dev/null 2>&1; then
	exec 9>"$folder/lock"
	flock 9
fi

stamp=$folder/stamp
wanted="4:$missing:$alone"
if [ -f "$folder/env" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
	exit 0
fi
rm -rf "$stamp" "$root.new" "$root.old"
mkdir -p "$root.new"

if [ -n "$missing$alone" ]; then
	command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 || {
		say "not on PATH:$missing $alone; there is no apt-get to download them, install them"
		exit 1
	}
	apt=$folder/apt
	mkdir -p "$apt/cache/archives/partial" "$apt/state/lists/partial" "$apt/debs"
	# The system's dpkg status is read (it determines which dependencies are
	# missing) and never written: hooks that clean the system's cache after an
	# update are disabled.
	cat >"$apt/conf" <<-CONF
		Dir::Cache "$apt/cache/";
		Dir::State "$apt/state/";
		Dir::State::status "/var/lib/dpkg/status";
		Dir::State::extended_states "/var/lib/apt/extended_states";
		Dir::Log "$apt/";
		APT::Sandbox::User "$(id -un)";
		APT::Install-Recommends "false";
		Debug::NoLocking "true";
		Acquire::Retries "3";
		$([ -z "$architectures" ] || echo "APT::Architectures { \"$(dpkg --print-architecture)\";$architectures };")
		#clear APT::Update::Pre-Invoke;
		#clear APT::Update::Post-Invoke;
		#clear APT::Update::Post-Invoke-Success;
	CONF
	export DEBIAN_FRONTEND=noninteractive
	# Read after the system's configuration, which may set a mirror or a proxy.
	apt_get() { apt-get -qq -c "$apt/conf" "$@"; }

	# Names of the packages to unpack: the requested ones and their missing dependencies.
	names() {
		[ -z "$missing" ] || apt_get --print-uris install $missing |
			sed -n "s/^'[^']*' \([^_ ]*\)_.*/\1/p"
		[ -z "$alone" ] || echo "$alone" | tr ' ' '\n'
	}
	download() {
		list=$(names) && [ -n "$list" ] && (cd "$apt/debs" && rm -f ./*.deb && apt_get download $list) >&2
	}
	update() {
		say "downloading package lists"
		apt_get update >&2
	}
	# The package lists are updated if there are none, or if a download fails because they are outdated.
	[ -n "$(find "$apt/state/lists" -maxdepth 1 -name '*_Packages*' -print -quit)" ] || update
	say "downloading$missing $alone"
	download || { update && download; } || {
		say "could not download:$missing $alone"
		exit 1
	}
	for deb in "$apt"/debs/*.deb; do
		dpkg-deb -x "$deb" "$root.new"
	done
	rm -rf "$apt/debs" "$apt/cache"
fi

# The package's installation would link these names.
sbin=$root.new/usr/sbin
for program in iptables ip6tables; do
	[ -e "$sbin/$program-nft" ] || continue
	for end in "" -save -restore; do
		ln -sf "$program-nft$end" "$sbin/$program$end"
	done
done

# Replaced atomically: a running test cluster may use the old folder.
[ ! -d "$root" ] || mv "$root" "$root.old"
mv "$root.new" "$root"
rm -rf "$root.old"

libraries=
extensions=
for d in "$root"/usr/lib/*-linux-* "$root"/lib/*-linux-*; do
	[ ! -d "$d" ] || libraries="$libraries${libraries:+:}$d"
	[ ! -d "$d/xtables" ] || extensions=$d/xtables
done
{
	echo "PATH=\"$root/usr/sbin:$root/usr/bin:$root/sbin:$root/bin:\$PATH:/usr/sbin:/sbin\""
	[ -z "$libraries" ] || echo "LD_LIBRARY_PATH=\"$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}\""
	[ -z "$extensions" ] || echo "XTABLES_LIBDIR=\"$extensions\""
	echo "export PATH${libraries:+ LD_LIBRARY_PATH}${extensions:+ XTABLES_LIBDIR}"
} >"$folder/env"
echo "$wanted" >"$stamp"
