package org.falkirk;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** The assertions of the Java tests. */
final class Check {
    /** Code that may throw. */
    interface Code {
        void run() throws Exception;
    }

    private Check() {}

    /** Return how many seeds a test of random records runs: all in the soak, otherwise a quarter of them. */
    static int seeds(int all) {
        return System.getenv("FALKIRK_STRIKES") == null ? (all + 3) / 4 : all;
    }

    static void equal(Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError("found " + found + ", expected " + expected);
        }
    }

    /** Checks that both have the same elements, each as often. The error names only those that differ. */
    static <T> void sameInAnyOrder(List<T> found, List<T> expected) {
        equal("more: " + without(found, expected) + ", missing: " + without(expected, found), "more: [], missing: []");
    }

    private static <T> List<T> without(List<T> all, List<T> others) {
        Map<T, Integer> left = new HashMap<>();
        others.forEach(each -> left.merge(each, 1, Integer::sum));
        List<T> found = new ArrayList<>();
        all.forEach(each -> {
            if (left.merge(each, -1, Integer::sum) < 0) found.add(each);
        });
        return found;
    }

    static void that(boolean holds, String statement) {
        if (!holds) {
            throw new AssertionError("does not hold: " + statement);
        }
    }

    /** Return the error of this class that the code throws. */
    static <E extends Throwable> E thrown(Class<E> kind, Code code) {
        try {
            code.run();
        } catch (Throwable error) {
            if (kind.isInstance(error)) {
                return kind.cast(error);
            }
            throw new AssertionError("found " + error + ", expected " + kind.getName(), error);
        }
        throw new AssertionError("found no error, expected " + kind.getName());
    }
}
