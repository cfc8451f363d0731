// Command kube is a Kubernetes of its own: every component of a cluster in one static binary, chosen
// by the name that it is called by or, called `kube`, by the first argument. It adds nothing to the
// components; what runs is what upstream ships. Only kindnetd is ours.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmutil "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	kubemark "k8s.io/kubernetes/cmd/kubemark/app"
)

// Each reads its arguments from os.Args, and returns or exits.
var components = map[string]func(){
	"etcd":    func() { etcdmain.Main(os.Args) },
	"kubeadm": func() { kubeadmutil.HandleError(kubeadm.Run()) },
	"kubectl": func() {
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	},
	"kube-apiserver":          cobraCommand(apiserver.NewAPIServerCommand),
	"kube-controller-manager": cobraCommand(controllermanager.NewControllerManagerCommand),
	"kube-scheduler":          cobraCommand(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubelet":                 cobraCommand(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kube-proxy":              cobraCommand(proxy.NewProxyCommand),
	// A real kubelet over a runtime that only pretends: Pods become Ready, no process runs.
	"hollow-node": cobraCommand(kubemark.NewHollowNodeCommand),
	"kindnetd":    kindnetd,
}

func main() {
	name := filepath.Base(os.Args[0])
	if name == "kube" && len(os.Args) > 1 {
		name, os.Args = os.Args[1], os.Args[1:]
	}
	run, known := components[name]
	if !known {
		names := strings.Join(slices.Sorted(maps.Keys(components)), ", ")
		fmt.Fprintf(os.Stderr, "usage: kube COMPONENT [flags]; components: %s\n", names)
		os.Exit(2)
	}
	run()
}

// Commands are built only when asked for: several of them set process-wide state when built.
func cobraCommand(build func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(build())) }
}
