// The small controller of `cargo xtask bench` on controller-runtime, caches on client-go's informers,
// and client-go's work queue alone. `loadtest/peers/peer/src/lib.rs` describes the protocol.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

type arguments struct {
	kubeconfig, mode, namespace string
	objects, workers            int
}

func main() {
	var args arguments
	// Our own set, because controller-runtime adds a flag to the common one.
	flags := flag.NewFlagSet("peer", flag.ExitOnError)
	flags.StringVar(&args.kubeconfig, "kubeconfig", "", "where the cluster is")
	flags.StringVar(&args.mode, "mode", "", "what to do there: patch, noop, latency, rate, pods, customs, kinds, queue")
	flags.StringVar(&args.namespace, "namespace", "", "of everything that is watched")
	flags.IntVar(&args.objects, "objects", 0, "how many objects there are to reconcile")
	flags.IntVar(&args.workers, "workers", 10, "how many are reconciled at once")
	_ = flags.Parse(os.Args[1:])
	if err := run(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args arguments) error {
	if args.mode == "queue" {
		return measureQueue()
	}
	ctrl.SetLogger(logr.Discard())
	mgr, err := manager(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	kinds, err := prepare(ctx, mgr, args)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	if err := answer(ctx, os.Stdin, mgr, kinds); err != nil && err != io.EOF {
		return err
	}
	cancel()
	return <-ended
}

func manager(args arguments) (ctrl.Manager, error) {
	config, err := clientcmd.BuildConfigFromFlags("", args.kubeconfig)
	if err != nil {
		return nil, err
	}
	// Only the server's own fairness limits the other peers.
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	addBench(scheme)
	return ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{args.namespace: {}},
			DefaultTransform:  cache.TransformStripManagedFields(),
		},
	})
}

// prepare adds what the mode needs and returns the kinds that are counted.
func prepare(ctx context.Context, mgr ctrl.Manager, args arguments) ([]client.Object, error) {
	switch args.mode {
	case "patch", "noop", "latency", "rate":
		return []client.Object{&Bench{}}, addReconciler(mgr, args)
	case "pods":
		return watch(ctx, mgr, &corev1.Pod{})
	case "customs":
		return watch(ctx, mgr, &Bench{})
	case "kinds":
		return watch(ctx, mgr, twentyKinds()...)
	default:
		return nil, fmt.Errorf("there is no mode %q", args.mode)
	}
}
