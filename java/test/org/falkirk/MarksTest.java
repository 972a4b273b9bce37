package org.falkirk;

import java.util.Map;
import java.util.TreeMap;

/** Twins send each result once, per channel and output partition. */
public final class MarksTest {
    private static boolean sends(Marks marks, String topic, int to, String stamp) {
        boolean isNew = marks.isNew(topic, to, Stamp.decode(stamp));
        if (isNew) marks.raise(topic, to, Stamp.decode(stamp));
        return isNew;
    }

    public void eachResultOnceWhicheverTwinIsFirst() {
        Marks marks = new Marks();
        String[] results = {"0.0.1", "0.0.1.0", "0.0.1.1", "0.0.2", "0.0.10"};
        int sent = 0;
        for (int first = 0, second = 0; first < results.length || second < results.length;) {
            boolean ahead = first < results.length && (first + second) % 3 != 2;
            if (second >= results.length || ahead) sent += sends(marks, "out", 0, results[first++]) ? 1 : 0;
            else sent += sends(marks, "out", 0, results[second++]) ? 1 : 0;
        }
        Check.equal(sent, results.length);
    }

    public void channelsAreApart() {
        Marks marks = new Marks();
        Check.equal(sends(marks, "out", 0, "0.0.9"), true);
        for (Object[] other : new Object[][] {{"out", 1, "0.0.1"}, {"out", 0, "0.1.1"}, {"out", 0, "1.0.1"}, {"dead", 0, "0.0.1"}}) {
            Check.equal(sends(marks, (String) other[0], (Integer) other[1], (String) other[2]), true);
        }
        Check.equal(sends(marks, "out", 0, "0.0.8.7"), false);
        Map<String, Long> reached = new TreeMap<>(Map.of("0 0", 3L, "0 1", 30L));
        marks.reached(reached);
        Check.equal(reached.toString(), "{0 0=9, 0 1=30, 1 0=1}");
    }
}
