// Command register writes to an etcd cluster from several clients at once, and checks by the recorded
// history that every key behaved as one register: that there is an order of all operations, in which
// each lies between its call and its return, and reads give what was written last. It runs until it is
// asked to stop with SIGTERM, then it reads every key once more and writes its verdict.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"leasehold.dev/tests/real/workloads/report"
)

const (
	patience = 2 * time.Second
	// After this many operations the clients go on to new keys: checking one key takes time and memory
	// that grow with the square of its operations.
	generation = 4000
	// A connection stays with one member. After so many operations, or failures one after the other, a
	// client opens another, so that the clients spread over the members and leave those that hang.
	perConnection = 250
	failuresEach  = 2
)

var (
	endpoints  = flag.String("endpoints", "", "client URLs, separated by commas")
	serverName = flag.String("server-name", "", "the name in the servers' certificates")
	authority  = flag.String("cacert", "", "the authority's certificate")
	cert       = flag.String("cert", "", "our certificate")
	key        = flag.String("key", "", "our key")
	clients    = flag.Int("clients", 6, "how many clients write at once")
	keys       = flag.Int("keys", 4, "how many keys they share at a time")
	pause      = flag.Duration("pause", 15*time.Millisecond, "what a client waits between operations")
	file       = flag.String("report", "register.json", "where the report goes")
)

func main() {
	flag.Parse()
	report.Main(*file, run)
}

// Works until stop is done.
func run(stop context.Context) error {
	config, err := config()
	if err != nil {
		return err
	}
	recorder, history := report.New(*file), newHistory()
	done := make(chan struct{})
	go recorder.Follow(done)
	var all sync.WaitGroup
	for id := range *clients {
		client := &client{id: id, config: config, history: history, recorder: recorder}
		if err := client.connect(); err != nil {
			return err
		}
		all.Go(func() { client.work(stop) })
	}
	all.Wait()
	recorder.Stop()
	last := &client{id: *clients, config: config, history: history, recorder: recorder}
	if err := last.readAll(); err != nil {
		return err
	}
	close(done)
	return recorder.Write(history.verdict(recorder))
}

func config() (clientv3.Config, error) {
	config := clientv3.Config{
		Endpoints:   strings.Split(*endpoints, ","),
		DialTimeout: patience,
		Logger:      zap.NewNop(),
	}
	if *authority == "" {
		return config, nil
	}
	pem, err := os.ReadFile(*authority)
	if err != nil {
		return config, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config.TLS = &tls.Config{
		RootCAs:    roots,
		ServerName: *serverName,
		// Read for each connection: certificates are renewed.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(*cert, *key)
			return &pair, err
		},
	}
	return config, nil
}

// One of those that write.
type client struct {
	id       int
	written  int
	config   clientv3.Config
	kv       *clientv3.Client
	history  *history
	recorder *report.Recorder
}

// Opens a connection in place of the one before. It is made when it is first used.
func (c *client) connect() error {
	etcd, err := clientv3.New(c.config)
	if err != nil {
		return err
	}
	if c.kv != nil {
		c.kv.Close()
	}
	c.kv = etcd
	return nil
}

// Works until it is asked to stop.
func (c *client) work(stop context.Context) {
	// What it last saw of each key.
	seen := map[string]string{}
	for count, failures := 1, 0; stop.Err() == nil; count++ {
		if count%perConnection == 0 || (failures > 0 && failures%failuresEach == 0) {
			if err := c.connect(); err != nil {
				c.recorder.Failed(err)
			}
		}
		name := c.history.current()
		var err error
		switch dice := rand.IntN(10); {
		case dice < 1:
			err = c.read(stop, c.history.any(), seen)
		case dice < 5:
			err = c.read(stop, name, seen)
		case dice < 8:
			err = c.write(stop, name)
		default:
			err = c.swap(stop, name, seen)
		}
		// Each unknown outcome makes the history harder to check.
		wait := *pause
		if failures++; err == nil {
			failures = 0
		} else {
			wait = min(50*time.Millisecond<<min(failures, 4), time.Second)
		}
		select {
		case <-stop.Done():
		case <-time.After(wait):
		}
	}
}

func (c *client) value() string {
	c.written++
	return fmt.Sprintf("%d-%d", c.id, c.written)
}

func (c *client) read(parent context.Context, name string, seen map[string]string) error {
	// What is asked is finished: a stop must not make outcomes unknown.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), patience)
	defer cancel()
	call := c.history.now()
	answer, err := c.kv.Get(ctx, name)
	if err != nil {
		c.recorder.Failed(err)
		return err
	}
	value := ""
	if len(answer.Kvs) == 1 {
		value = string(answer.Kvs[0].Value)
	}
	c.history.add(c.id, name, operation{kind: read, saw: value}, call)
	c.recorder.Read()
	seen[name] = value
	return nil
}

func (c *client) write(parent context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), patience)
	defer cancel()
	operation := operation{kind: write, value: c.value()}
	call := c.history.now()
	_, err := c.kv.Put(ctx, name, operation.value)
	return c.finish(name, operation, call, err)
}

// Writes if the key has the value that this client saw last.
func (c *client) swap(parent context.Context, name string, seen map[string]string) error {
	expected, known := seen[name]
	if !known {
		return c.read(parent, name, seen)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), patience)
	defer cancel()
	operation := operation{kind: swap, value: c.value(), expected: expected}
	call := c.history.now()
	condition := clientv3.Compare(clientv3.Value(name), "=", expected)
	if expected == "" {
		condition = clientv3.Compare(clientv3.CreateRevision(name), "=", 0)
	}
	answer, err := c.kv.Txn(ctx).If(condition).
		Then(clientv3.OpPut(name, operation.value)).Else(clientv3.OpGet(name)).Commit()
	if err == nil && !answer.Succeeded {
		// What it saw instead is a read.
		if found := answer.Responses[0].GetResponseRange().Kvs; len(found) == 1 {
			seen[name] = string(found[0].Value)
		} else {
			seen[name] = ""
		}
		operation.kind, operation.saw = refused, seen[name]
		c.history.add(c.id, name, operation, call)
		c.recorder.Read()
		return nil
	}
	if err == nil {
		seen[name] = operation.value
	}
	return c.finish(name, operation, call, err)
}

// Records a write and its outcome.
func (c *client) finish(name string, operation operation, call int64, err error) error {
	if err != nil {
		// The request may be on its way still.
		operation.unknown = true
		c.recorder.Unknown(err)
	} else {
		c.recorder.Acknowledged()
	}
	c.history.add(c.id, name, operation, call)
	return err
}

// Reads every key once more.
func (c *client) readAll() error {
	end := time.Now().Add(60 * time.Second)
	for _, name := range c.history.names() {
		for {
			err := c.connect()
			if err == nil {
				err = c.read(context.Background(), name, map[string]string{})
			}
			if err == nil {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("the last read of %s: %w", name, err)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	return nil
}
