// Package report counts what a workload's servers acknowledged, and writes it to a file that a check
// reads while the workload runs. The last one carries the verdict.
package report

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Report is what the file holds.
type Report struct {
	// Verdict is empty while the workload runs.
	Verdict string `json:"verdict"`
	// Violations say what must not have happened.
	Violations []string `json:"violations"`
	// Acknowledged counts writes whose success was acknowledged.
	Acknowledged int64 `json:"acknowledged"`
	// Failed counts operations that certainly had no effect.
	Failed int64 `json:"failed"`
	// Unknown counts writes that may have had an effect.
	Unknown int64 `json:"unknown"`
	// Reads counts reads that were answered.
	Reads int64 `json:"reads"`
	// LongestGapMs is the longest time without an acknowledged write.
	LongestGapMs int64 `json:"longestGapMs"`
	// GapsMs are the times of more than half a second without an acknowledged write, the first thousand.
	GapsMs []int64 `json:"gapsMs"`
	// SecondsWithout counts the seconds of the run in which no write was acknowledged.
	SecondsWithout int64 `json:"secondsWithout"`
	// ElapsedMs is the time since the first acknowledged write.
	ElapsedMs int64 `json:"elapsedMs"`
	// LastError is what a server or the network said last.
	LastError string `json:"lastError"`
}

// Recorder counts, from several goroutines.
type Recorder struct {
	mu      sync.Mutex
	report  Report
	started time.Time
	last    time.Time
	seconds map[int64]bool
	file    string
}

// New makes a recorder that writes to file.
func New(file string) *Recorder {
	return &Recorder{file: file, seconds: map[int64]bool{}}
}

// Acknowledged counts a write.
func (r *Recorder) Acknowledged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.started.IsZero() {
		r.started = now
	} else {
		r.gap(now)
	}
	r.last = now
	r.seconds[int64(now.Sub(r.started)/time.Second)] = true
	r.report.Acknowledged++
}

// Read counts a read.
func (r *Recorder) Read() { r.count(&r.report.Reads, nil) }

// Failed counts an operation without an effect.
func (r *Recorder) Failed(err error) { r.count(&r.report.Failed, err) }

// Unknown counts a write that may have had an effect.
func (r *Recorder) Unknown(err error) { r.count(&r.report.Unknown, err) }

func (r *Recorder) count(counter *int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*counter++
	if err != nil {
		r.report.LastError = err.Error()
	}
}

func (r *Recorder) gap(until time.Time) {
	gap := until.Sub(r.last).Milliseconds()
	r.report.LongestGapMs = max(r.report.LongestGapMs, gap)
	if gap > 500 && len(r.report.GapsMs) < 1000 {
		r.report.GapsMs = append(r.report.GapsMs, gap)
	}
}

// Violate records what must not have happened.
func (r *Recorder) Violate(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// One is enough to fail; the others help to understand it.
	if len(r.report.Violations) < 20 {
		r.report.Violations = append(r.report.Violations, what)
	}
}

// Sound says whether nothing was recorded that must not have happened.
func (r *Recorder) Sound() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.report.Violations) == 0
}

// Stop ends the time in which writes are expected.
func (r *Recorder) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started.IsZero() {
		return
	}
	now := time.Now()
	r.gap(now)
	r.report.ElapsedMs = now.Sub(r.started).Milliseconds()
	r.report.SecondsWithout = r.report.ElapsedMs/1000 + 1 - int64(len(r.seconds))
}

// Write replaces the file. The verdict is empty while the workload runs.
func (r *Recorder) Write(verdict string) error {
	r.mu.Lock()
	report := r.report
	if verdict == "" && !r.started.IsZero() {
		report.ElapsedMs = time.Since(r.started).Milliseconds()
		report.SecondsWithout = report.ElapsedMs/1000 + 1 - int64(len(r.seconds))
	}
	r.mu.Unlock()
	report.Verdict = verdict
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.file+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(r.file+".new", r.file)
}

// Main runs a workload until it is asked to stop. If it fails, its report says why, and the program ends.
func Main(file string, run func(stop context.Context) error) {
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	if err := run(stop); err != nil {
		fmt.Fprintln(os.Stderr, err)
		_ = New(file).Write("failed: " + err.Error())
		os.Exit(1)
	}
}

// Follow writes the file several times a second until done is closed.
func (r *Recorder) Follow(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(200 * time.Millisecond):
			_ = r.Write("")
		}
	}
}
