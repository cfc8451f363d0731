package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// tally counts the objects that were reconciled for the current trigger. An
// object counts once for each trigger, however often it is reconciled.
type tally struct {
	trigger atomic.Uint64
	count   atomic.Int64
	counted []atomic.Uint64
	lock    sync.Mutex
	began   time.Time
}

func newTally(objects int) *tally {
	return &tally{counted: make([]atomic.Uint64, objects)}
}

func name(index int) string {
	return fmt.Sprintf("bench-%05d", index)
}

// begin starts a trigger; an older one changes nothing.
func (t *tally) begin(trigger uint64) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if trigger > t.trigger.Load() {
		t.began = time.Now()
		t.count.Store(0)
		t.trigger.Store(trigger)
	}
}

// record counts an object that was reconciled, and writes `done` with the last one.
func (t *tally) record(name string, trigger uint64) {
	index, err := strconv.Atoi(name[strings.LastIndex(name, "-")+1:])
	if err != nil || trigger == 0 || index >= len(t.counted) || t.counted[index].Swap(trigger) == trigger {
		return
	}
	if count := int(t.count.Add(1)); count == len(t.counted) {
		t.lock.Lock()
		seconds := time.Since(t.began).Seconds()
		t.lock.Unlock()
		say(done{"done", trigger, count, seconds})
	}
}
