// Redlatch runs commands under a lock in Redis, and shows and releases locks.
//
//	redlatch run [flags] KEY -- COMMAND [ARG...]
//	redlatch status [flags] KEY...
//	redlatch unlock [flags] KEY
//
// For example, in the crontab of several hosts, of which one is to make the report:
//
//	REDIS_URL=redis://redis.internal:6379
//	0 3 * * * redlatch run -try -min-hold 1m nightly-report -- make-report
//
// It shares its locks with programs that use the package github.com/redlatch/redlatch: NewSetNXPX with one Redis,
// NewRedlock with several.
//
// # Redis
//
// Each command has these flags:
//
//	-redis URL      a Redis. Repeat it to lock on a quorum of independent servers (Redlock)
//	-prefix TEXT    stands before KEY in Redis. The default is none
//
// Without -redis, the environment variable REDIS_URL names the Redis, or several with spaces in between. There is no
// default: a lock on a server that nobody else uses excludes nobody. A URL reads
//
//	redis://user:password@host:port/db
//	rediss://user:password@host:port/db
//	unix://user:password@/path/to/socket?db=0
//
// with rediss for TLS. Special characters in a password must be percent-encoded. Redlatch prints no URL. Use REDIS_URL
// for one with a password, since other users can see the arguments of a process.
//
// # Run
//
// Run waits until KEY is free, holds the lock while COMMAND runs, and exits with its status. Its flags are:
//
//	-try            do not wait: exit with 75 if KEY is held
//	-timeout D      wait no longer than D, such as 30s or 5m. The default is no limit
//	-ttl D          how long the lock lasts if nothing renews it. The default is 10s
//	-grace D        the time between SIGTERM and SIGKILL when the lock is lost. The most is a third of -ttl; the
//	                default is that, but no more than 5s. 0 sends SIGKILL at once
//	-min-hold D     keep others out for D after the lock was acquired, even if COMMAND ends sooner
//	-owner NAME     who holds the lock, for status and for those who wait. The default has the host and the pid
//
// If Redis is unavailable at first, run exits with 69. Once it waits, it goes on through outages and reports them on
// stderr. A wait on one Redis is first come, first served.
//
// COMMAND has the stdin, stdout and stderr of redlatch, and these variables in its environment:
//
//	REDLATCH_KEY    KEY
//	REDLATCH_TOKEN  what proves ownership. It is a secret: whoever knows it can release the lock
//	REDLATCH_FENCE  a number that grows with every grant of KEY. Let what the lock protects refuse a lower one
//	                than it has seen: that also stops a command that was paused for longer than the TTL
//
// The lock is released when COMMAND exits. What it leaves running in the background goes on without the lock.
//
// # Loss
//
// The lock is renewed every third of its TTL. If it is lost, because it was deleted or taken or because Redis stayed
// out of reach, COMMAND must end. It runs in a process group of its own. The whole group gets SIGTERM, and SIGKILL
// after the time of -grace if a process of the group is left. Run then exits with 70, whatever COMMAND returned.
//
// In an outage SIGTERM is sent before the lock ends, so that SIGKILL comes before Redis can give KEY to another owner:
//
//	SIGTERM = end of the lease − grace − TTL/20
//	SIGKILL = end of the lease − TTL/20
//
// So with the defaults the command survives an outage of about 2.5 s at any time. A longer -ttl survives longer ones. A lock
// that was deleted or taken is noticed at the next renewal: others may hold KEY already. Processes that leave the
// group, as daemons do, are not signaled.
//
// If redlatch itself is killed by SIGKILL, Linux kills COMMAND too, but not the children of COMMAND. On other systems
// COMMAND goes on without a lock. In either case KEY is free after its TTL.
//
// # Signals
//
// HUP, INT, QUIT, TERM, USR1, USR2, WINCH and TSTP are passed on to the group of COMMAND. Those that are ignored when
// redlatch starts, as HUP is under nohup, stay ignored. A signal that comes while run waits ends the wait: nothing is
// left in Redis, and the status is 128+n.
//
// On a terminal, the group of COMMAND becomes the foreground group when it first reads from the terminal or changes
// its settings. Ctrl-Z stops both COMMAND and redlatch. The lock is not renewed while redlatch is stopped. If it was
// lost in the meantime, COMMAND does not continue and is killed.
//
// # Status
//
// Status prints a line for each KEY, with tabs between the columns:
//
//	KEY	held or free	OWNER	time left	number of waiters
//
// with a dash for what is not known, and "never" for a key without a TTL. With -json each line is a JSON object with
// the fields key, held, owner, ttl_ns and waiters; ttl_ns is negative where the key has no TTL. It is a picture of a
// moment that has passed. The exit status is 0, whether a KEY is held or free. No token is printed.
//
// # Unlock
//
// Unlock releases KEY in the place of its owner. It shows who holds KEY and asks; -f releases without asking, and is
// required where stdin is not a terminal. It releases the grant that it has shown and nothing newer: if another
// owner has acquired KEY in the meantime, it releases nothing and exits with 75. A key without a TTL is not a lock of
// redlatch, and is left alone.
//
// The owner does not notice before its next renewal, and may go on until then. The next waiter gets the lock at once.
// So unlock is for an owner that is known not to work any more.
//
// # Exit status
//
//	0       done, or KEY was free; for run: COMMAND returned 0
//	1       for unlock: the answer was no
//	64      the arguments cannot work
//	69      Redis is unavailable, or refuses
//	70      for run: the lock was lost while COMMAND ran
//	75      another owner holds KEY
//	126     COMMAND cannot be run
//	127     COMMAND was not found. This is found out before the lock is taken
//	128+n   signal n ended COMMAND, or the wait
//
// Any other status of run is that of COMMAND. Run needs Linux, macOS or a BSD.
package main
