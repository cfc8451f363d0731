// Command bank moves money between accounts in MySQL from several clients at once, and checks that
// none is lost: the sum of all accounts is constant whenever it is read, every acknowledged transfer is
// found, none that was rolled back is, and the transfers explain every balance. It runs until it is asked
// to stop with SIGTERM, then it writes its verdict.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"leasehold.dev/tests/real/workloads/report"
)

const (
	patience = 3 * time.Second
	balance  = 1000
)

var (
	address  = flag.String("address", "", "host and port of the primary")
	user     = flag.String("user", "root", "the user")
	password = flag.String("password-file", "", "the file that holds the password")
	database = flag.String("database", "bank", "the database, which is created if it does not exist")
	clients  = flag.Int("clients", 4, "how many clients write at once")
	accounts = flag.Int("accounts", 20, "how many accounts there are")
	pause    = flag.Duration("pause", 10*time.Millisecond, "what a client waits between transfers")
	file     = flag.String("report", "bank.json", "where the report goes")
	// What was written before, by another run, may be found.
	again = flag.Bool("again", false, "go on with the accounts that exist")
)

func main() {
	flag.Parse()
	report.Main(*file, run)
}

// Works until stop is done.
func run(stop context.Context) error {
	pool, err := open("")
	if err != nil {
		return err
	}
	if err := insist(func(ctx context.Context) error { return prepare(ctx, pool) }); err != nil {
		return fmt.Errorf("make the accounts: %w", err)
	}
	pool.Close()
	if pool, err = open(*database); err != nil {
		return err
	}
	defer pool.Close()
	bank := &bank{pool: pool, recorder: report.New(*file), outcomes: map[string]outcome{}}
	done := make(chan struct{})
	go bank.recorder.Follow(done)
	var all sync.WaitGroup
	for id := range *clients {
		all.Go(func() { bank.work(stop, id) })
	}
	all.Go(func() { bank.watch(stop) })
	all.Wait()
	bank.recorder.Stop()
	if err := insist(bank.audit); err != nil {
		return fmt.Errorf("the audit: %w", err)
	}
	close(done)
	return bank.recorder.Write(bank.verdict)
}

func open(database string) (*sql.DB, error) {
	config := mysql.NewConfig()
	config.Net, config.Addr, config.User, config.DBName = "tcp", *address, *user, database
	config.Timeout, config.ReadTimeout, config.WriteTimeout = time.Second, patience, patience
	config.RejectReadOnly, config.AllowNativePasswords = true, true
	config.TLSConfig = "preferred"
	config.Logger = &mysql.NopLogger{}
	if *password != "" {
		text, err := os.ReadFile(*password)
		if err != nil {
			return nil, err
		}
		config.Passwd = strings.TrimRight(string(text), "\n")
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	pool := sql.OpenDB(connector)
	// A connection stays with the server that it was made to, whoever is primary.
	pool.SetConnMaxLifetime(10 * time.Second)
	return pool, nil
}

// Tries for two minutes.
func insist(try func(context.Context) error) error {
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(300 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		err := try(ctx)
		cancel()
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

func prepare(ctx context.Context, pool *sql.DB) error {
	statements := []string{"CREATE DATABASE IF NOT EXISTS `" + *database + "`"}
	if !*again {
		statements = append(statements,
			fmt.Sprintf("DROP TABLE IF EXISTS `%[1]s`.transfers, `%[1]s`.accounts", *database))
	}
	statements = append(statements,
		fmt.Sprintf("CREATE TABLE IF NOT EXISTS `%s`.accounts (id INT PRIMARY KEY, balance BIGINT NOT NULL)", *database),
		fmt.Sprintf("CREATE TABLE IF NOT EXISTS `%s`.transfers (id VARCHAR(64) PRIMARY KEY, source INT NOT NULL, target INT NOT NULL, amount INT NOT NULL)", *database))
	for id := range *accounts {
		statements = append(statements,
			fmt.Sprintf("INSERT IGNORE INTO `%s`.accounts VALUES (%d, %d)", *database, id, balance))
	}
	for _, statement := range statements {
		if _, err := pool.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

type outcome int

const (
	acknowledged outcome = iota
	rolledBack
	unknown
)

type bank struct {
	pool     *sql.DB
	recorder *report.Recorder
	verdict  string

	mu       sync.Mutex
	outcomes map[string]outcome
}

// Transfers until it is asked to stop.
func (b *bank) work(stop context.Context, client int) {
	run := fmt.Sprintf("%x", time.Now().UnixNano())
	for number := 0; stop.Err() == nil; number++ {
		id := fmt.Sprintf("%s-%d-%d", run, client, number)
		result, err := b.transfer(stop, id)
		b.mu.Lock()
		b.outcomes[id] = result
		b.mu.Unlock()
		wait := *pause
		switch result {
		case acknowledged:
			b.recorder.Acknowledged()
		case rolledBack:
			b.recorder.Failed(err)
			wait = 100 * time.Millisecond
		case unknown:
			b.recorder.Unknown(err)
			wait = 100 * time.Millisecond
		}
		select {
		case <-stop.Done():
		case <-time.After(wait):
		}
	}
}

// One transaction. Only the answer to its commit can leave its outcome unknown.
func (b *bank) transfer(parent context.Context, id string) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), 2*patience)
	defer cancel()
	transaction, err := b.pool.BeginTx(ctx, nil)
	if err != nil {
		return rolledBack, err
	}
	defer transaction.Rollback()
	source, target, amount := rand.IntN(*accounts), rand.IntN(*accounts), 1+rand.IntN(9)
	if source == target {
		target = (source + 1) % *accounts
	}
	// In the same order everywhere, so that few transactions wait for each other.
	for _, change := range [2][2]int{
		{min(source, target), signed(amount, source > target)},
		{max(source, target), signed(amount, source < target)},
	} {
		if _, err := transaction.ExecContext(ctx, "UPDATE accounts SET balance = balance + ? WHERE id = ?", change[1], change[0]); err != nil {
			return rolledBack, err
		}
	}
	if _, err := transaction.ExecContext(ctx, "INSERT INTO transfers VALUES (?, ?, ?, ?)", id, source, target, amount); err != nil {
		return rolledBack, err
	}
	if err := transaction.Commit(); err != nil {
		return unknown, err
	}
	return acknowledged, nil
}

func signed(amount int, receives bool) int {
	if receives {
		return amount
	}
	return -amount
}

// Reads the sum now and then.
func (b *bank) watch(stop context.Context) {
	for stop.Err() == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(stop), patience)
		var sum sql.NullInt64
		err := b.pool.QueryRowContext(ctx, "SELECT SUM(balance) FROM accounts").Scan(&sum)
		cancel()
		if err == nil {
			b.recorder.Read()
			b.expectSum(sum.Int64)
		}
		select {
		case <-stop.Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
}

func (b *bank) expectSum(sum int64) {
	if expected := int64(*accounts * balance); sum != expected {
		b.recorder.Violate(fmt.Sprintf("the sum of all accounts was %d, not %d", sum, expected))
	}
}

// Compares accounts and transfers with what was acknowledged.
func (b *bank) audit(ctx context.Context) error {
	transaction, err := b.pool.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return err
	}
	defer transaction.Rollback()
	balances, found := make([]int64, *accounts), map[string]bool{}
	rows, err := transaction.QueryContext(ctx, "SELECT id, source, target, amount FROM transfers")
	if err != nil {
		return err
	}
	for rows.Next() {
		var id string
		var source, target int
		var amount int64
		if err := rows.Scan(&id, &source, &target, &amount); err != nil {
			return err
		}
		found[id] = true
		balances[source] -= amount
		balances[target] += amount
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	sum := int64(0)
	for id, change := range balances {
		var held int64
		if err := transaction.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = ?", id).Scan(&held); err != nil {
			return err
		}
		sum += held
		if held != balance+change {
			b.recorder.Violate(fmt.Sprintf("account %d holds %d, and its transfers say %d", id, held, balance+change))
		}
	}
	b.expectSum(sum)
	for id, outcome := range b.outcomes {
		switch {
		case outcome == acknowledged && !found[id]:
			b.recorder.Violate("transfer " + id + " was acknowledged and is lost")
		case outcome == rolledBack && found[id]:
			b.recorder.Violate("transfer " + id + " was never committed and is there")
		}
	}
	b.verdict = "sound"
	if !b.recorder.Sound() {
		b.verdict = "unsound"
	}
	return nil
}
