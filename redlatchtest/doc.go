// Package redlatchtest provides a Locker for tests of code that locks.
//
// The Locker works on a Redis inside the test: it needs no server and no network. Its methods
// simulate another owner that takes a key, and a network that fails.
//
//	func TestSecondPaymentIsRefused(t *testing.T) {
//		locker := redlatchtest.NewLocker(t)
//		locker.Hold("cart:7") // somebody else pays
//		require.Equal(t, http.StatusConflict, post(handler(locker), "/carts/7/payment"))
//	}
//
// To simulate an event, call:
//
//	another owner has the key         Hold
//	a wait ends with the lock         Hold, then Free
//	the owner crashes during a wait   Hold, then Expire
//	the lock of the code is lost      Steal or Expire
//	Redis cannot be reached           Disconnect
//	Redis can be reached again        Reconnect
//	Redis is slow                     Delay
//
// [NewReadWrite], [NewSemaphore] and [NewRedlock] return Lockers of other kinds, with the same
// methods. [Testing your code] has a test for each of these events.
//
// # Fakes
//
// A fake that decides itself what to answer embeds a [*Locker], which grants held locks and can take
// them away. A zero [redlatch.Lock] counts as released. To refuse, return an error such as
// &redlatch.HeldError{Owner: "bob"}, which matches [redlatch.ErrNotAcquired].
//
// # Time
//
// Keys expire and locks are renewed by the clock of the test. In a bubble of [testing/synctest] an hour
// takes no time. Create the Locker inside the bubble. It is closed before the bubble ends and leaves
// nothing running, so the test need not sleep at its end. The Redis is 27 years ahead of the bubble,
// which begins in 2000, because fences count the time from 2026. Code that waits for a lock needs a ctx
// that ends with the test, such as t.Context().
//
// Outside a bubble, set a short TTL with [redlatch.WithTTL] in a test that waits for a loss. A holder
// notices at its next renewal, after a third of the TTL, that its lock was taken away. With a TTL below
// 10 s also set [redlatch.WithOpTimeout] to some seconds: its default is a tenth of the TTL, which a
// busy machine may not meet.
//
// # Leaks
//
// A bubble fails a test that leaves a goroutine running. Outside a bubble, a check such as
// go.uber.org/goleak must run after the Locker is closed. So register it before:
//
//	t.Cleanup(func() { goleak.VerifyNone(t) }) // runs last
//	locker := redlatchtest.NewLocker(t)
//
// # Miniredis
//
// The Redis is [miniredis], which needs a 64-bit platform for the numbers in the scripts. A test that
// starts its own miniredis and makes a Locker on it moves two clocks. FastForward lets keys expire.
// SetTime sets the answer of TIME, which stands still from then on. Neither moves the clock of the
// holder, so a lock that has expired in Redis is trusted until its next renewal or its own end. A step
// of the clock of Redis is both.
//
// [Testing your code]: https://github.com/redlatch/redlatch/blob/main/docs/testing.md
// [miniredis]: https://github.com/alicebob/miniredis
package redlatchtest
