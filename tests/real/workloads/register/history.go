package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"leasehold.dev/tests/real/workloads/report"
)

// How long the check of the history may take.
const checkDeadline = 60 * time.Second

type kind int

const (
	read kind = iota
	write
	// A swap that took place.
	swap
	// A swap that did not take place; it is a read.
	refused
)

// What was asked and answered. The empty value is that of a key that was never written; all others are
// written at most once.
type operation struct {
	kind kind
	// What a write or a swap writes.
	value string
	// What a swap expects.
	expected string
	// What a read or a refused swap saw.
	saw string
	// Whether nobody knows that it took place.
	unknown bool
}

// The operations of each key.
type history struct {
	mu         sync.Mutex
	started    time.Time
	operations map[string][]porcupine.Operation
	order      []string
	count      int
}

func newHistory() *history {
	return &history{started: time.Now(), operations: map[string][]porcupine.Operation{}}
}

func (h *history) now() int64 { return int64(time.Since(h.started)) }

// One of the keys that are worked on.
func (h *history) current() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprintf("register/%d-%d", h.count/(generation**keys), rand.IntN(*keys))
}

// One of all keys.
func (h *history) any() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.order) == 0 {
		return "register/0-0"
	}
	return h.order[rand.IntN(len(h.order))]
}

func (h *history) names() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.order)
}

// Records what has just returned.
func (h *history) add(client int, name string, operation operation, call int64) {
	end := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.operations[name]; !known {
		h.order = append(h.order, name)
	}
	h.count++
	h.operations[name] = append(h.operations[name], porcupine.Operation{
		ClientId: client, Input: operation, Call: call, Output: nil, Return: end,
	})
}

// Checks each key by itself.
func (h *history) verdict(recorder *report.Recorder) string {
	for name, operations := range h.operations {
		result := porcupine.CheckOperationsTimeout(register(), settled(operations), checkDeadline)
		switch result {
		case porcupine.Illegal:
			recorder.Violate(fmt.Sprintf("%s: no order of its %d operations explains what was read", name, len(operations)))
			return "not linearizable"
		case porcupine.Unknown:
			recorder.Violate(fmt.Sprintf("%s: its %d operations were not checked in time", name, len(operations)))
			return "unknown"
		}
	}
	return "linearizable"
}

// The operations with bounds for those whose outcome nobody knows, without which the check would take
// forever. Values are unique, and every answer shows the value it was given in. So a value that somebody
// saw was written before that answer; and a write whose value nobody ever saw changes nothing that
// was answered, wherever it stands.
func settled(operations []porcupine.Operation) []porcupine.Operation {
	firstSeen := map[string]int64{}
	for _, o := range operations {
		asked := o.Input.(operation)
		var values []string
		switch asked.kind {
		case read, refused:
			values = []string{asked.saw}
		case swap:
			if !asked.unknown {
				values = []string{asked.expected}
			}
		}
		for _, value := range values {
			if before, known := firstSeen[value]; !known || o.Return < before {
				firstSeen[value] = o.Return
			}
		}
	}
	kept := make([]porcupine.Operation, 0, len(operations))
	client := math.MaxInt32
	for _, o := range operations {
		if o.Input.(operation).unknown {
			seen, known := firstSeen[o.Input.(operation).value]
			if !known {
				continue
			}
			// Its client goes on before it ends, so it counts as one of its own.
			client--
			o.ClientId, o.Return = client, max(seen, o.Call)
		}
		kept = append(kept, o)
	}
	return kept
}

// What a single register does.
func register() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, input, _ any) (bool, any) {
			switch asked := input.(operation); asked.kind {
			case read:
				return state == asked.saw, state
			case refused:
				return state == asked.saw && state != asked.expected, state
			case swap:
				return state == asked.expected, asked.value
			default:
				return true, asked.value
			}
		},
	}
}
