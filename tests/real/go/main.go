// go-redis in its own idiom, RESP2 and RESP3, with a lock (redsync) and a rate limiter (redis_rate). usage: realclients PORT
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func check(ok bool, what ...any) {
	if !ok {
		panic(fmt.Sprint(what...))
	}
}

func must[T any](value T, err error) T {
	check(err == nil, err)
	return value
}

func comesTrue(what func() bool) {
	for end := time.Now().Add(10 * time.Second); !what(); time.Sleep(2 * time.Millisecond) {
		check(time.Now().Before(end), "it does not come true")
	}
}

func pipelines(r *redis.Client) {
	replies, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := 0; i < 10000; i++ {
			p.Set(ctx, fmt.Sprint("p:", i), i, 0)
			p.Get(ctx, fmt.Sprint("p:", i))
		}
		return nil
	})
	check(err == nil && len(replies) == 20000, err)
	for i := 0; i < 10000; i++ {
		check(replies[2*i+1].(*redis.StringCmd).Val() == strconv.Itoa(i))
	}
	replies, err = r.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.LPush(ctx, "p:1", "x")
		p.Echo(ctx, "fine")
		return nil
	})
	check(redis.HasErrorPrefix(err, "WRONGTYPE") && replies[1].Err() == nil, err)
}

func transactions(r *redis.Client) {
	must(r.Set(ctx, "balance", 0, 0).Result())
	add := func() error {
		for tries := 0; tries < 1000; tries++ {
			err := r.Watch(ctx, func(tx *redis.Tx) error {
				before, err := tx.Get(ctx, "balance").Int()
				if err != nil {
					return err
				}
				_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
					p.Set(ctx, "balance", before+1, 0)
					return nil
				})
				return err
			}, "balance")
			if !errors.Is(err, redis.TxFailedErr) {
				return err
			}
		}
		return errors.New("it never succeeds")
	}
	var group sync.WaitGroup
	for i := 0; i < 50; i++ {
		group.Add(1)
		go func() { defer group.Done(); check(add() == nil) }()
	}
	group.Wait()
	check(r.Get(ctx, "balance").Val() == "50", r.Get(ctx, "balance").Val())
}

func messages(r *redis.Client) {
	listener := r.Subscribe(ctx, "news")
	defer listener.Close()
	check(listener.PSubscribe(ctx, "n*") == nil)
	comesTrue(func() bool { return r.PubSubNumPat(ctx).Val() == 1 && r.PubSubNumSub(ctx, "news").Val()["news"] == 1 })
	channel := listener.Channel()
	for i := 0; i < 50; i++ {
		check(must(r.Publish(ctx, "news", i).Result()) == 2)
	}
	for i := 0; i < 100; i++ {
		select {
		case message := <-channel:
			check(message.Payload == strconv.Itoa(i/2) && message.Channel == "news", i, message)
		case <-time.After(10 * time.Second):
			check(false, "no message")
		}
	}
	check(listener.Ping(ctx, "there") == nil)
}

func streams(r *redis.Client) {
	must(r.XGroupCreateMkStream(ctx, "s", "g", "$").Result())
	found := make(chan []redis.XStream, 1)
	go func() {
		found <- must(r.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "one", Streams: []string{"s", ">"}, Block: 10 * time.Second}).Result())
	}()
	id := must(r.XAdd(ctx, &redis.XAddArgs{Stream: "s", Values: map[string]any{"field": "value"}}).Result())
	first := (<-found)[0].Messages[0]
	check(first.ID == id && first.Values["field"] == "value", first)
	for i := 0; i < 20; i++ {
		must(r.XAdd(ctx, &redis.XAddArgs{Stream: "s", MaxLen: 1000, Approx: true, Values: []any{"n", i}}).Result())
	}
	must(r.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "two", Streams: []string{"s", ">"}}).Result())
	pending := must(r.XPending(ctx, "s", "g").Result())
	check(pending.Count == 21 && pending.Lower == id && pending.Consumers["two"] == 20, pending)
	check(len(must(r.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: "s", Group: "g", Start: "-", End: "+", Count: 5}).Result())) == 5)
	claimed, _, err := r.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: "s", Group: "g", Consumer: "three", Start: "0-0", Count: 100}).Result()
	check(err == nil && len(claimed) == 21, err)
	check(must(r.XAck(ctx, "s", "g", id).Result()) == 1)
	info := must(r.XInfoStreamFull(ctx, "s", 10).Result())
	check(info.Length == 21 && info.Groups[0].PelCount == 20, info)
	check(must(r.XInfoGroups(ctx, "s").Result())[0].Consumers == 3)
}

func pops(r *redis.Client) {
	var group sync.WaitGroup
	var mutex sync.Mutex
	done := map[string]bool{}
	for i := 0; i < 4; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				job := must(r.BLPop(ctx, 10*time.Second, "jobs", "urgent").Result())[1]
				if job == "end" {
					return
				}
				mutex.Lock()
				done[job] = true
				mutex.Unlock()
			}
		}()
	}
	for i := 0; i < 200; i++ {
		must(r.RPush(ctx, []string{"jobs", "urgent"}[i%2], i).Result())
	}
	must(r.RPush(ctx, "urgent", "end", "end", "end", "end").Result())
	group.Wait()
	check(len(done) == 200, len(done))
	check(errors.Is(r.BLPop(ctx, time.Second, "jobs").Err(), redis.Nil))
	must(r.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "a"}, redis.Z{Score: 2, Member: "b"}).Result())
	top := must(r.BZPopMax(ctx, time.Second, "z").Result())
	check(top.Key == "z" && top.Member == "b" && top.Score == 2, top)
	key, popped, err := r.BZMPop(ctx, time.Second, "min", 5, "none", "z").Result()
	check(err == nil && key == "z" && popped[0].Score == 1.5, err)
}

func iterators(r *redis.Client) {
	seen := map[string]bool{}
	for each := r.Scan(ctx, 0, "p:*", 300).Iterator(); each.Next(ctx); {
		seen[each.Val()] = true
	}
	check(len(seen) == 10000, len(seen))
	must(r.SAdd(ctx, "set", must(r.Keys(ctx, "p:1*").Result())).Result())
	members := 0
	for each := r.SScan(ctx, "set", 0, "", 100).Iterator(); each.Next(ctx); {
		members++
	}
	check(members >= 1111, members)
}

func scripts(r *redis.Client) {
	add := redis.NewScript("return redis.call('incrby', KEYS[1], ARGV[1])")
	for i := 1; i <= 3; i++ {
		check(must(add.Run(ctx, r, []string{"n"}, 5).Int()) == 5*i)
		must(r.ScriptFlush(ctx).Result())
	}
	check(redis.HasErrorPrefix(add.EvalSha(ctx, r, []string{"n"}, 5).Err(), "NOSCRIPT"))
	check(must(r.FunctionLoadReplace(ctx, "#!lua name=lib\nredis.register_function('twice', function(_, args) return args[1] * 2 end)").Result()) == "lib")
	check(must(r.FCall(ctx, "twice", nil, 21).Int()) == 42)
	check(must(r.FunctionList(ctx, redis.FunctionListQuery{WithCode: true}).Result())[0].Functions[0].Name == "twice")
}

func large(r *redis.Client) {
	value := bytes.Repeat([]byte("0123456789\x00\xff\r\n\x80x"), 4<<20)
	key := "\x00\xff\r\n\x80"
	must(r.Set(ctx, key, value, 0).Result())
	check(bytes.Equal(must(r.Get(ctx, key).Bytes()), value))
	check(must(r.Del(ctx, key).Result()) == 1)
}

func reconnects(r *redis.Client) {
	options := *r.Options()
	options.PoolSize, options.MaxRetries = 1, 5
	other := redis.NewClient(&options)
	defer other.Close()
	id := must(other.ClientID(ctx).Result())
	check(must(r.ClientKillByFilter(ctx, "ID", fmt.Sprint(id)).Result()) == 1)
	must(other.Set(ctx, "after", 1, 0).Result())
	check(must(other.ClientID(ctx).Result()) != id)
}

func lockAndLimit(r *redis.Client) {
	locks := redsync.New(goredis.NewPool(r))
	inside, group := 0, sync.WaitGroup{}
	for i := 0; i < 8; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			lock := locks.NewMutex("lock", redsync.WithTries(1000), redsync.WithRetryDelay(3*time.Millisecond))
			check(lock.Lock() == nil)
			inside++
			check(inside == 1)
			inside--
			check(must(lock.Extend()) && must(lock.Unlock()))
		}()
	}
	group.Wait()
	limiter, allowed := redis_rate.NewLimiter(r), 0
	for i := 0; i < 20; i++ {
		allowed += must(limiter.Allow(ctx, "user", redis_rate.PerHour(10))).Allowed
	}
	check(allowed == 10, allowed)
}

func main() {
	all := []struct {
		name string
		run  func(*redis.Client)
	}{
		{"pipelines", pipelines}, {"transactions that are tried again", transactions}, {"publish and subscribe", messages},
		{"streams with consumer groups", streams}, {"blocking pops", pops}, {"iterators", iterators},
		{"scripts whose text the server has lost", scripts}, {"large values and binary keys", large},
		{"a connection that is killed comes back", reconnects}, {"a lock and a rate limiter", lockAndLimit},
	}
	for _, protocol := range []int{2, 3} {
		r := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1], Protocol: protocol})
		must(r.FlushAll(ctx).Result())
		for _, each := range all {
			each.run(r)
			fmt.Printf("ok   %s, RESP%d\n", each.name, protocol)
		}
		r.Close()
	}
}
