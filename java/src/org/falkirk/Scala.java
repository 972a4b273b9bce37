package org.falkirk;

import java.util.ArrayList;
import java.util.List;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** Lists of Java as sequences of Scala, and back. */
final class Scala {
  private Scala() {}

  static <A> Seq<A> seq(List<? extends A> list) {
    return CollectionConverters.<A>asScala(new ArrayList<A>(list).iterator()).toList();
  }

  static <A> List<A> list(scala.collection.Iterable<? extends A> several) {
    List<A> list = new ArrayList<>();
    for (Iterator<? extends A> parts = several.iterator(); parts.hasNext(); ) {
      list.add(parts.next());
    }
    return list;
  }
}
