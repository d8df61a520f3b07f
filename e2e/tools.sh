#!/bin/sh
# Makes the programs that the test bed needs from the system (nft, ip, and the
# DHCP servers dnsmasq and kea-dhcp4) and the one that checks the alert rules
# (promtool) available in a folder, without installing anything and without
# root, and writes FOLDER/env, which sets PATH and LD_LIBRARY_PATH:
#
#	tools.sh FOLDER && . FOLDER/env
#
# What is on PATH already is used from there. The rest comes from Debian's
# packages (or a derivative's): apt finds and downloads them with state and
# cache of its own inside the folder, dpkg-deb unpacks them.
set -eu
[ $# -eq 1 ] || {
	echo "usage: tools.sh FOLDER" >&2
	exit 2
}
folder=$(mkdir -p "$1" && cd "$1" && pwd)
root=$folder/root
# Administration programs are not on every user's PATH, though installed. What
# an earlier run unpacked does not count as there.
PATH=$(printf '%s' "$PATH" | tr ':' '\n' | grep -vF "$root/" | paste -sd: -):/usr/sbin:/sbin

say() { echo "tools: $*" >&2; }

# program=package; promtool is in a package that would bring a server with it,
# so that one is unpacked without its dependencies (it needs the C library only).
missing=
for pair in nft=nftables ip=iproute2 dnsmasq=dnsmasq-base kea-dhcp4=kea-dhcp4-server; do
	command -v "${pair%%=*}" >/dev/null 2>&1 || missing="$missing ${pair#*=}"
done
alone=
command -v promtool >/dev/null 2>&1 || alone=prometheus

# Several test binaries may ask at once: the first one works, the others wait.
if command -v flock >/dev/null 2>&1; then
	exec 9>"$folder/lock"
	flock 9
fi

stamp=$folder/stamp
wanted="3:$missing:$alone"
if [ -f "$folder/env" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
	exit 0
fi
rm -rf "$stamp" "$root.new" "$root.old"
mkdir -p "$root.new"

if [ -n "$missing$alone" ]; then
	command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 || {
		say "not on PATH:$missing $alone; there is no apt-get here to fetch them with, install them"
		exit 1
	}
	apt=$folder/apt
	mkdir -p "$apt/cache/archives/partial" "$apt/state/lists/partial" "$apt/debs"
	# The machine's own state is read (what is installed decides which
	# dependencies are missing), never written: hooks that tidy its cache
	# after an update are switched off.
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
		#clear APT::Update::Pre-Invoke;
		#clear APT::Update::Post-Invoke;
		#clear APT::Update::Post-Invoke-Success;
	CONF
	export DEBIAN_FRONTEND=noninteractive
	# Read after the machine's configuration, which may name a mirror or a proxy.
	apt_get() { apt-get -qq -c "$apt/conf" "$@"; }

	# Names of the packages to unpack: those asked for and what they need that is not installed.
	names() {
		[ -z "$missing" ] || apt_get --print-uris install $missing |
			sed -n "s/^'[^']*' \([^_ ]*\)_.*/\1/p"
		[ -z "$alone" ] || echo "$alone"
	}
	download() {
		list=$(names) && [ -n "$list" ] && (cd "$apt/debs" && rm -f ./*.deb && apt_get download $list) >&2
	}
	update() {
		say "fetching package lists"
		apt_get update >&2
	}
	# Package lists are taken again when a download with the present ones fails: they age.
	[ -n "$(find "$apt/state/lists" -maxdepth 1 -name '*_Packages*' -print -quit)" ] || update
	say "fetching$missing $alone"
	download || { update && download; } || {
		say "could not fetch:$missing $alone"
		exit 1
	}
	for deb in "$apt"/debs/*.deb; do
		dpkg-deb -x "$deb" "$root.new"
	done
	rm -rf "$apt/debs" "$apt/cache"
fi

# Changed in one step: a bed may be running with what was there.
[ ! -d "$root" ] || mv "$root" "$root.old"
mv "$root.new" "$root"
rm -rf "$root.old"

libraries=
for d in "$root"/usr/lib/*-linux-* "$root"/lib/*-linux-*; do
	[ ! -d "$d" ] || libraries="$libraries${libraries:+:}$d"
done
{
	echo "PATH=\"$root/usr/sbin:$root/usr/bin:$root/sbin:$root/bin:\$PATH:/usr/sbin:/sbin\""
	[ -z "$libraries" ] || echo "LD_LIBRARY_PATH=\"$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}\""
	echo "export PATH${libraries:+ LD_LIBRARY_PATH}"
} >"$folder/env"
echo "$wanted" >"$stamp"
