package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

var stdout sync.Mutex

// say writes a line to the harness at once.
func say(line any) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	stdout.Lock()
	defer stdout.Unlock()
	fmt.Fprintln(os.Stdout, string(text))
}

type done struct {
	Event   string  `json:"event"`
	Trigger uint64  `json:"trigger"`
	Count   int     `json:"count"`
	Seconds float64 `json:"seconds"`
}

type started struct {
	Event     string `json:"event"`
	Value     uint64 `json:"value"`
	UnixNanos int64  `json:"unix_nanos"`
}

type counted struct {
	Event   string `json:"event"`
	Objects int    `json:"objects"`
}

type heap struct {
	Event string `json:"event"`
	Bytes uint64 `json:"bytes"`
}

// answer handles the requests of the harness until there are no more.
func answer(ctx context.Context, in io.Reader, mgr ctrl.Manager, kinds []client.Object) error {
	say(map[string]string{"event": "ready"})
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		switch line := lines.Text(); line {
		case "count":
			objects, err := count(ctx, mgr.GetCache(), mgr.GetScheme(), kinds)
			if err != nil {
				return err
			}
			say(counted{"counted", objects})
		case "heap":
			say(heap{"heap", heapBytes()})
		default:
			return fmt.Errorf("the harness said %q", line)
		}
	}
	return lines.Err()
}

// heapBytes is the size of the heap after a garbage collection, including that of finalizers.
func heapBytes() uint64 {
	goruntime.GC()
	goruntime.GC()
	var stats goruntime.MemStats
	goruntime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// count reports how many objects are cached once the caches have synced.
func count(ctx context.Context, from cache.Cache, scheme *runtime.Scheme, kinds []client.Object) (int, error) {
	objects := 0
	for _, kind := range kinds {
		gvk, err := apiutil.GVKForObject(kind, scheme)
		if err != nil {
			return 0, err
		}
		list, err := scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err != nil {
			return 0, err
		}
		var unstarted *cache.ErrCacheNotStarted
		err = from.List(ctx, list.(client.ObjectList), client.UnsafeDisableDeepCopy)
		if errors.As(err, &unstarted) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		objects += meta.LenList(list)
	}
	return objects, nil
}
