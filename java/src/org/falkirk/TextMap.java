package org.falkirk;

import java.util.HashMap;
import java.util.Map;

/** Makes a map of texts from one text; py4j sends a command for each entry. */
public final class TextMap {
  /** Stands between names and values. No option of Spark or Kafka contains it. */
  private static final String BETWEEN = "\u001f";

  private TextMap() {}

  /**
   * Return a new map.
   *
   * @param entries the names and values in turn, with a unit separator (U+001F) between them
   */
  public static Map<String, String> of(String entries) {
    String[] parts = entries.split(BETWEEN, -1);
    Map<String, String> map = new HashMap<>();
    for (int i = 0; i < parts.length; i += 2) {
      map.put(parts[i], parts[i + 1]);
    }
    return map;
  }
}
