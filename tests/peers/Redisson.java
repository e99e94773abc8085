import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson's RLock, on behalf of a test: the operations acquire, try_acquire and release of the driver protocol, and
 * count and force_unlock. A lock belongs to the thread that took it, so each request names its thread.
 */
public final class Redisson {
    private static final Map<String, RedissonClient> CLIENTS = new ConcurrentHashMap<>();
    private static final Map<String, ExecutorService> THREADS = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String request = line;
            String thread = text(request, "thread", "main");
            THREADS.computeIfAbsent(thread, name -> Executors.newSingleThreadExecutor()).execute(() -> run(request));
        }
        System.exit(0);
    }

    private static void run(String request) {
        String result;
        try {
            result = "\"ok\":" + act(request);
        } catch (Throwable error) {
            String message = String.valueOf(error.getMessage()).replaceAll("[\"\\\\\\p{Cntrl}]", " ");
            result = "\"error\":{\"kind\":\"" + error.getClass().getSimpleName() + "\",\"message\":\"" + message + "\"}";
        }
        synchronized (System.out) {
            System.out.println("{\"id\":" + number(request, "id") + "," + result + "}");
            System.out.flush();
        }
    }

    private static String act(String request) throws InterruptedException {
        String op = text(request, "op", "");
        if (op.equals("hello")) {
            return "\"Redisson " + org.redisson.Version.class.getPackage().getImplementationVersion() + "\"";
        }
        RLock lock = CLIENTS.computeIfAbsent(text(request, "url", ""), Redisson::connect).getLock(text(request, "name", ""));
        switch (op) {
            case "try_acquire":
                return String.valueOf(lock.tryLock());
            case "acquire":
                // without a lease time: the watchdog keeps it, 30 s at a time
                return String.valueOf(lock.tryLock(number(request, "wait_ms"), TimeUnit.MILLISECONDS));
            case "release":
                lock.unlock();
                return "null";
            case "count":
                return String.valueOf(lock.getHoldCount());
            case "force_unlock":
                return String.valueOf(lock.forceUnlock());
            default:
                throw new IllegalArgumentException(op);
        }
    }

    private static RedissonClient connect(String url) {
        Config config = new Config();
        config.useSingleServer().setAddress(url.replaceAll("/$", "")).setConnectionMinimumIdleSize(1)
            .setConnectionPoolSize(8).setSubscriptionConnectionMinimumIdleSize(1);
        return org.redisson.Redisson.create(config);
    }

    private static String text(String request, String field, String otherwise) {
        var found = Pattern.compile("\"" + field + "\":\"([^\"]*)\"").matcher(request);
        return found.find() ? found.group(1) : otherwise;
    }

    private static long number(String request, String field) {
        var found = Pattern.compile("\"" + field + "\":(\\d+)").matcher(request);
        return found.find() ? Long.parseLong(found.group(1)) : 0;
    }
}
