package redlatch_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redlatch/redlatch"
)

// At most two uploads run at a time, in all processes together.
func ExampleNewSemaphore() {
	_, client, end := embedded()
	defer end()
	ctx := context.Background()

	uploads, err := redlatch.NewSemaphore(client, 2)
	must(err)
	upload := func(ctx context.Context, file string) error {
		return redlatch.Do(ctx, uploads, "uploads", func(context.Context, *redlatch.Lock) error {
			fmt.Println("upload", file)
			return nil
		})
	}
	must(upload(ctx, "a.jpg"))

	first := granted(uploads.Lock(ctx, "uploads"))
	second := granted(uploads.Lock(ctx, "uploads"))
	_, err = uploads.TryLock(ctx, "uploads")
	fmt.Println("a third upload has to wait:", errors.Is(err, redlatch.ErrNotAcquired))
	status, err := uploads.Inspect(ctx, "uploads")
	must(err)
	fmt.Println("holders:", status.Holders)

	must(first.Unlock(ctx))
	must(upload(ctx, "b.jpg"))
	must(second.Unlock(ctx))

	// All processes must name the same limit.
	granted(uploads.Lock(ctx, "uploads"))
	three, err := redlatch.NewSemaphore(client, 3)
	must(err)
	_, err = three.TryLock(ctx, "uploads")
	fmt.Println(err)
	// Output:
	// upload a.jpg
	// a third upload has to wait: true
	// holders: 2
	// upload b.jpg
	// redlatch: try lock "uploads": invalid option: limit 3: the holders of "uploads" have limit 2
}
