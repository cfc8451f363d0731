package main

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// How many keys pass through the queue, no two alike.
const queuedKeys = 1_000_000

type queue struct {
	Event     string  `json:"event"`
	Keys      int     `json:"keys"`
	PerSecond float64 `json:"per_second"`
}

// measureQueue has one goroutine add keys and another take and finish them.
func measureQueue() error {
	keys := make([]reconcile.Request, queuedKeys)
	for index := range keys {
		key := types.NamespacedName{Namespace: "ns", Name: fmt.Sprintf("object-%d", index)}
		keys[index] = reconcile.Request{NamespacedName: key}
	}
	work := workqueue.NewTyped[reconcile.Request]()
	var consumer sync.WaitGroup
	began := time.Now()
	consumer.Go(func() {
		for {
			key, shutdown := work.Get()
			if shutdown {
				return
			}
			work.Done(key)
		}
	})
	for _, key := range keys {
		work.Add(key)
	}
	work.ShutDownWithDrain()
	consumer.Wait()
	say(queue{"queue", len(keys), float64(len(keys)) / time.Since(began).Seconds()})
	return nil
}
