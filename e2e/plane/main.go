// Command plane is a Kubernetes control plane, a node's data path and a client in one binary: etcd, kube-apiserver,
// kube-controller-manager, kube-proxy, kube-vip and kubectl, each built unchanged from its own module.
//
// The tests and the demo of this repository need the real thing and must not download prebuilt binaries. One binary
// shares the bulk of the compiled packages among six programs, which keeps the only long build step short.
//
// The program is chosen by the name it is called by (a symlink), else by the first argument:
//
//	plane kube-apiserver --etcd-servers=...
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	kubevip "github.com/kube-vip/kube-vip/cmd"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
)

// kubeVipVersion is what kube-vip reports about itself; its module carries no version of its own.
const kubeVipVersion = "v0.9.1"

// programs maps a program's name to what runs it. A program that is a cobra command is returned, the others run and
// never come back.
var programs = map[string]func() *cobra.Command{
	"etcd": func() *cobra.Command {
		etcdmain.Main(os.Args)
		return nil
	},
	"kube-vip": func() *cobra.Command {
		kubevip.Release.Version = kubeVipVersion
		kubevip.Execute()
		return nil
	},
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": kcm.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

func main() {
	name := filepath.Base(os.Args[0])
	if programs[name] == nil && len(os.Args) > 1 {
		// Every one of the programs reads os.Args by itself, so the choice is taken out of it.
		name = os.Args[1]
		os.Args = append([]string{name}, os.Args[2:]...)
	}
	program := programs[name]
	if program == nil {
		fmt.Fprintf(os.Stderr, "plane: no program %q; one of: %s\n", name, strings.Join(names(), ", "))
		os.Exit(2)
	}
	if command := program(); command != nil {
		os.Exit(cli.Run(command))
	}
}

func names() []string {
	return []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-vip", "kubectl"}
}
