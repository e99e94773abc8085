package onelock.tests;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import onelock.Cancel;
import onelock.Client;
import onelock.ClientOptions;
import onelock.Lease;
import onelock.Lock;
import onelock.LockOptions;
import onelock.LockTimeoutException;
import onelock.LossReason;
import onelock.Release;

/** What a program in Java writes. */
public final class JavaCaller {
    public static void run(String url, String name) throws Exception {
        ClientOptions options = new ClientOptions().ttl(Duration.ofSeconds(10)).label("java");
        try (Client client = Client.connect(url, options)) {
            Lock lock = client.lock(name, new LockOptions().autoRenew(true));
            try (Lease lease = lock.acquire(Duration.ofSeconds(5))) {
                require(lease.isHeld() && lease.getFencingToken() > 0 && lease.getRemaining().toMillis() > 1_000);
                require(lock.tryAcquire() == null);
                try {
                    lock.acquire(Duration.ofMillis(10));
                    throw new AssertionError("acquired twice");
                } catch (LockTimeoutException expected) {
                    require(expected.getMessage().contains(name));
                }
                lease.extend(Duration.ofSeconds(20));
                require(client.inspect(name).getHoldCount() == 1);
            }
            Lease lease = lock.acquire();
            CompletableFuture<LossReason> told = new CompletableFuture<>();
            lease.onLost(told::complete);
            require(lease.release() == Release.RELEASED && !told.isDone());
            Lease cancellable = lock.acquire(new Cancel());
            cancellable.onLost(told::complete);
            try (Lease both = Lock.of(client.lock(name + "-a"), client.fairLock(name + "-b")).acquire()) {
                require(both.getNames().equals(List.of(name + "-a", name + "-b")));
            }
            client.close();
            require(told.get(60, TimeUnit.SECONDS) == LossReason.CLOSED);
        }
    }

    private static void require(boolean condition) {
        if (!condition) throw new AssertionError();
    }

    private JavaCaller() {}
}
