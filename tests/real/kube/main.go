// Command kube is a Kubernetes of its own: every component of a cluster in one static binary,
// chosen by the first argument. It adds nothing to the components; what runs is what upstream ships.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	kubemark "k8s.io/kubernetes/cmd/kubemark/app"
)

// component returns the exit code of one component run with args.
type component func(args []string) int

func components() map[string]component {
	return map[string]component{
		"etcd":                    runEtcd,
		"kubectl":                 runKubectl,
		"kube-apiserver":          cobraCommand(apiserver.NewAPIServerCommand),
		"kube-controller-manager": cobraCommand(controllermanager.NewControllerManagerCommand),
		"kube-scheduler":          cobraCommand(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kubelet":                 cobraCommand(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
		"kube-proxy":              cobraCommand(proxy.NewProxyCommand),
		// A real kubelet over a runtime that only pretends: Pods become Ready, no process runs.
		"hollow-node": cobraCommand(kubemark.NewHollowNodeCommand),
	}
}

func main() {
	known := components()
	if len(os.Args) > 1 {
		if run, ok := known[os.Args[1]]; ok {
			os.Exit(run(os.Args[2:]))
		}
	}
	var names []string
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(os.Stderr, "usage: kube COMPONENT [flags]; components: %s\n", strings.Join(names, ", "))
	os.Exit(2)
}

// Commands are built only when asked for: several of them set process-wide state when built.
func cobraCommand(build func() *cobra.Command) component {
	return func(args []string) int {
		command := build()
		command.SetArgs(args)
		return cli.Run(command)
	}
}

// kubectl reads its own name and arguments from os.Args (for plugins), so they must look as usual.
func runKubectl(args []string) int {
	os.Args = append([]string{"kubectl"}, args...)
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}
