package main

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// How many different keys pass through the queue.
const queuedKeys = 1_000_000

type queue struct {
	Event string `json:"event"`
	Keys  int    `json:"keys"`
	// The default queue of a controller, which has priorities.
	PerSecond float64 `json:"per_second"`
	// client-go's queue, which has no priorities.
	PlainPerSecond float64 `json:"plain_per_second"`
}

// The methods that both queues have.
type adds interface {
	Add(reconcile.Request)
	Get() (reconcile.Request, bool)
	Done(reconcile.Request)
}

// measureQueue adds keys in one goroutine, and takes and finishes them in another.
func measureQueue() error {
	keys := make([]reconcile.Request, queuedKeys)
	for index := range keys {
		key := types.NamespacedName{Namespace: "ns", Name: fmt.Sprintf("object-%d", index)}
		keys[index] = reconcile.Request{NamespacedName: key}
	}
	prioritised := priorityqueue.New[reconcile.Request]("peer")
	plain := workqueue.NewTyped[reconcile.Request]()
	say(queue{"queue", len(keys), pass(prioritised, keys), pass(plain, keys)})
	prioritised.ShutDown()
	plain.ShutDown()
	return nil
}

// pass returns how many keys a second pass through a queue.
func pass(work adds, keys []reconcile.Request) float64 {
	var consumer sync.WaitGroup
	began := time.Now()
	consumer.Go(func() {
		for range keys {
			key, _ := work.Get()
			work.Done(key)
		}
	})
	for _, key := range keys {
		work.Add(key)
	}
	consumer.Wait()
	return float64(len(keys)) / time.Since(began).Seconds()
}
