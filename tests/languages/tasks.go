// Goroutines on stacks that grow, channels, preemption by SIGURG, recovered panics, os.Exit.
package main

import (
	"fmt"
	"os"
	"sync"
)

func fib(n int) int {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}

func deep(n int) int {
	var room [64]int
	room[n%64] = n
	if n == 0 {
		return room[0]
	}
	return deep(n-1) + room[n%64]&1
}

func guarded(n int) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("recovered: %v", r)
		}
	}()
	a := []int{1, 2, 3}
	_ = a[n]
	return nil
}

func main() {
	in, out := make(chan int), make(chan int, 100)
	var workers sync.WaitGroup
	for i := 0; i < 8; i++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for v := range in {
				out <- v
			}
		}()
	}
	sum := 0
	done := make(chan bool)
	go func() {
		for v := range out {
			sum += v
		}
		done <- true
	}()
	for i := 0; i < 1000; i++ {
		in <- i
	}
	close(in)
	workers.Wait()
	close(out)
	<-done
	fmt.Println(sum, fib(20), deep(20000), guarded(1), guarded(7))
	busy := 0
	for i := 0; i < 100000000; i++ { // without a call: only a signal preempts it
		busy += i & 3
	}
	fmt.Println(busy)
	if len(os.Args) > 1 {
		var nothing *int
		fmt.Println(*nothing)
	}
	os.Exit(4)
}
