package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var stdout sync.Mutex

// say tells the harness a line at once.
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

// answer does what the harness asks for, until it asks no more.
func answer(ctx context.Context, in io.Reader, from cache.Cache, kinds []client.Object) error {
	say(map[string]string{"event": "ready"})
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		switch line := lines.Text(); line {
		case "count":
			objects, err := count(ctx, from, kinds)
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

// heapBytes is what the heap holds once garbage is collected, that of finalizers too.
func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// count tells how many objects are cached. It does not wait for caches to fill.
func count(ctx context.Context, from cache.Cache, kinds []client.Object) (int, error) {
	objects := 0
	for _, kind := range kinds {
		informer, err := from.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return 0, err
		}
		all, ok := informer.(interface{ GetStore() toolscache.Store })
		if !ok {
			return 0, fmt.Errorf("an informer of %T does not show its store", kind)
		}
		objects += len(all.GetStore().ListKeys())
	}
	return objects, nil
}
